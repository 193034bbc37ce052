"""What a model might have said to the battery of Counteracts, made up: margins by formula."""

import numpy as np
import torch

from levelhead.core.frozen import FrozenDict
from levelhead.core.results import Provenance
from levelhead.core.run_context import Inference
from levelhead.data.prompts.counteracts import (
    load_counteracts_table,
    make_counteracts_prompts,
    make_factorial_prompts,
)
from levelhead.explain.prompting.contrasts import (
    compute_change_difference,
    compute_contrasts,
    compute_top_k,
)
from levelhead.explain.prompting.factorial import compute_factorial_effects
from levelhead.explain.prompting.knowledge import COUNTEREXAMPLE_KINDS, KnowledgeResult
from levelhead.explain.prompting.labour_statistics import regress_on_labour_shares
from levelhead.explain.prompting.paper_claims import check_paper_claims
from levelhead.measures.cloze.battery import MAX_TOP_K, BatteryResponses
from levelhead.measures.cloze.margins import estimate_kind_mean, estimate_margin
from levelhead.measures.items import MeasureItem
from levelhead.measures.responses import Responses

SHARES = {
    name: row["percent_female"] / 100
    for name, row in load_counteracts_table()["occupations"].items()
}


def counteracts_prompts(backgrounds=2):
    """Prompts of the 40 occupations, and the 2 x 2 x 2."""
    more = [prompt for prompt in make_factorial_prompts() if prompt.kind != "base"]
    result = [*make_counteracts_prompts(backgrounds=backgrounds), *more]
    return sorted(result, key=lambda single: single.majority_group != "female")


def answers(margin, *, noise=0.05, seed=0, prompts=None):
    """Answers whose female-male margin (log-odds) is `margin(prompt)` and noise."""
    rng = np.random.default_rng(seed)
    prompts = counteracts_prompts() if prompts is None else prompts
    values = []
    for prompt in prompts:
        odds = margin(prompt) + noise * rng.normal()
        p = 0.5 / (1 + np.exp(-odds))
        words = [np.log(p), np.log(0.5 - p)]
        # The two words, then tokens 2, 3 ... that belong to no group.
        best = sorted([(words[0], 0), (words[1], 1)], reverse=True)
        rest = [(np.log(0.01), 2 + i) for i in range(MAX_TOP_K - 2)]
        values.append([*words, *(i for _, i in best + rest), *(p for p, _ in best + rest)])
    items = tuple(
        MeasureItem(
            prompt.id,
            (("",),),
            (prompt.occupation, prompt.background or prompt.kind),
            prompt.majority_group,
            prompt.kind,
        )
        for prompt in prompts
    )
    return BatteryResponses(
        Responses(
            items=items,
            values=torch.tensor(values, dtype=torch.float64)[:, None],
            factors=("occupations", "backgrounds"),
            dropped=(),
            answers=torch.empty(0),
            owner=(),
            queries=(),
            metadata=FrozenDict(
                {
                    "words": [["she"], ["he"]],
                    "sides": ["female", "male"],
                    "tokens": [[0], [1]],
                    "counted": [0, 1],
                    "best": MAX_TOP_K,
                }
            ),
        )
    )


def side(prompt):
    """+1 if women dominate the occupation, else -1."""
    return 1 if prompt.majority_group == "female" else -1


def known():
    """All numbers of one such model."""
    inference = Inference(resamples=99, permutations=99)
    subset = answers(lambda single: side(single) * (0.4 if "counter" in single.kind else 1.0))
    base, made = estimate_margin(subset, "base", inference), compute_contrasts(subset, inference)
    return KnowledgeResult(
        base=base,
        preference=estimate_kind_mean(
            subset, "preference", "base", subset.margin, inference, "log-odds"
        ),
        mass=estimate_kind_mean(
            subset,
            "mass",
            "base",
            subset.mass + torch.linspace(0, 0.1, len(subset.items)),
            inference,
            "probability",
        ),
        top_k=compute_top_k(subset, "base", inference),
        contrasts=made,
        factorial=compute_factorial_effects(subset, inference),
        labour=regress_on_labour_shares(subset, inference),
        claims=check_paper_claims(
            base, made, causal=False,
            syntax=compute_change_difference(subset, *COUNTEREXAMPLE_KINDS, inference),
        ),
        groups=subset.groups,
        n=len(subset.items),
        occupations=len(subset.base),
        dropped=(),
        provenance=Provenance.of("made-up", "0" * 64, data={}, equation="none", settings={}),
    )  # fmt: skip
