"""What a model might have said to the battery of Counteracts, made up: margins by formula."""

import numpy as np
import torch

from levelhead.core.frozen import Frozen
from levelhead.core.results import Provenance
from levelhead.core.run_context import Inference
from levelhead.data.prompts.counteracts import counteracts, factorial, table
from levelhead.explain.prompting.contrasts import between, contrasts, tops_of
from levelhead.explain.prompting.factorial import factorial_effects
from levelhead.explain.prompting.knowledge import COUNTERS, Knowledge
from levelhead.explain.prompting.labour_statistics import labour
from levelhead.explain.prompting.paper_claims import findings
from levelhead.measures.cloze.battery import BEST, Answers
from levelhead.measures.cloze.margins import margin_of, mean_of
from levelhead.measures.items import Item
from levelhead.measures.responses import Readouts

SHARES = {name: row["percent_female"] / 100 for name, row in table()["occupations"].items()}


def asked(backgrounds=2):
    """Prompts of the 40 occupations, and the 2 x 2 x 2."""
    more = [one for one in factorial() if one.kind != "base"]
    found = [*counteracts(backgrounds=backgrounds), *more]
    return sorted(found, key=lambda one: one.dominated != "female")


def answers(margin, *, noise=0.05, seed=0, prompts=None):
    """Answers whose female-male margin (log-odds) is `margin(prompt)` and noise."""
    rng = np.random.default_rng(seed)
    prompts = asked() if prompts is None else prompts
    values = []
    for one in prompts:
        odds = margin(one) + noise * rng.normal()
        p = 0.5 / (1 + np.exp(-odds))
        words = [np.log(p), np.log(0.5 - p)]
        # The two words, then tokens 2, 3 ... that belong to no group.
        best = sorted([(words[0], 0), (words[1], 1)], reverse=True)
        rest = [(np.log(0.01), 2 + i) for i in range(BEST - 2)]
        values.append([*words, *(i for _, i in best + rest), *(p for p, _ in best + rest)])
    items = tuple(
        Item(
            one.id, (("",),), (one.occupation, one.background or one.kind), one.dominated, one.kind
        )
        for one in prompts
    )
    return Answers(
        Readouts(
            items=items,
            values=torch.tensor(values, dtype=torch.float64)[:, None],
            factors=("occupations", "backgrounds"),
            dropped=(),
            answers=torch.empty(0),
            owner=(),
            asks=(),
            facts=Frozen(
                {
                    "words": [["she"], ["he"]],
                    "sides": ["female", "male"],
                    "tokens": [[0], [1]],
                    "counted": [0, 1],
                    "best": BEST,
                }
            ),
        )
    )


def side(prompt):
    """+1 if women dominate the occupation, else -1."""
    return 1 if prompt.dominated == "female" else -1


def known():
    """All numbers of one such model."""
    inference = Inference(resamples=99, permutations=99)
    own = answers(lambda one: side(one) * (0.4 if "counter" in one.kind else 1.0))
    base, made = margin_of(own, "base", inference), contrasts(own, inference)
    return Knowledge(
        base=base,
        preference=mean_of(own, "preference", "base", own.margin, inference, "log-odds"),
        mass=mean_of(
            own, "mass", "base", own.mass + torch.linspace(0, 0.1, len(own.items)), inference,
            "probability",
        ),
        tops=tops_of(own, "base", inference),
        contrasts=made,
        factorial=factorial_effects(own, inference),
        labour=labour(own, inference),
        findings=findings(base, made, syntax=between(own, *COUNTERS, inference), causal=False),
        groups=own.groups,
        n=len(own.items),
        occupations=len(own.base),
        dropped=(),
        provenance=Provenance.of("made-up", "0" * 64, data={}, equation="none", settings={}),
    )  # fmt: skip
