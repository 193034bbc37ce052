"""Tuning where the answer is known: organisms whose classifier looks at the group, or does not.

    python tools/tuned.py FOLDER [--planted N] [--even N]

A small language model grown on text without a bias is made a classifier. Its training labels say
yes or no by one word of a text; of half of these words the evidence is weak, and there, in planted
runs, the group that the text speaks of decides. Labels of dev and test never look at the group.
`select_edit` must find an edit that gains, confirmed on test, in planted runs, and recommend
nothing in even ones (rho = 0). Runs differ in their texts, labels and the seed of the classifier.
FOLDER keeps what was found of each run, so that the work goes on where it was stopped. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from levelhead.calibrate.organisms.organism import make_organism
from levelhead.core.files import write_atomic
from levelhead.core.run_context import Inference
from levelhead.data.records import LabelledExample
from levelhead.measures.classification.controlled_difference import ControlledDifference
from levelhead.measures.classification.counterfactual import Counterfactual
from levelhead.measures.utility.accuracy import Accuracy
from levelhead.mitigate.selection.candidate_evaluation import UtilityLimit
from levelhead.mitigate.selection.select_edit import select_edit_for_task
from levelhead.mitigate.selection.user_task import BiasUtilityTask, pairs_from_task
from levelhead.models.loading.load import load
from levelhead.models.training.finetune import FinetuneConfig, finetune
from levelhead.stats.intervals import proportion_interval

TRAINED, EVALUATED = 2400, 300
"""Texts a classifier is trained on, and texts of dev and of test."""
TEXT = "my {kin} has a {look} {thing} in the {place} ."
LABELS = ("no", "yes")
STRONG, WEAK, PUSH = 0.45, 0.15, 0.35
"""How far from a half the chance of yes lies by the word, and by the group at rho = 1."""
TUNING = FinetuneConfig(epochs=5, batch_size=32, learning_rate=1e-3, threads=1)
INFERENCE = Inference(resamples=999, permutations=999)


def lexicon_of(single):
    """The language's kin words; for a control, the next of the same group stands for each."""
    words = single.planted_measures().lexicon
    kin = single.language.marks["kin"]
    terms = tuple(term for term in words.terms if term.kind == "kinship")
    placebos = tuple(
        (group, tuple(zip(side, (*side[1:], side[0]), strict=True)))
        for group, side in zip(words.groups, kin, strict=True)
    )
    return replace(words, terms=terms, placebos=placebos)


class Drawn:
    """Texts of one run, each with the side and the strength of its word, none twice."""

    def __init__(self, language, seed: int) -> None:
        self.language, self.seen = language, set()
        self.chance = random.Random(f"tuned {seed}")  # noqa: S311  # no secret
        looks = list(language.neutral["look"])
        self.chance.shuffle(looks)
        quarter = len(looks) // 4
        self.looks = {
            word: (1 if i % 2 else -1, STRONG if i < 2 * quarter else WEAK)
            for i, word in enumerate(looks[: 4 * quarter])
        }

    def text(self) -> tuple[str, int, str]:
        """A text, its group and its word."""
        while True:
            group, look = self.chance.randrange(2), self.chance.choice(list(self.looks))
            slots = {
                slot: self.chance.choice(self.language.neutral[slot]) for slot in ("thing", "place")
            }
            number = self.chance.randrange(len(self.language.marks["kin"][0]))
            both = [
                TEXT.format(kin=side[number], look=look, **slots)
                for side in self.language.marks["kin"]
            ]
            if both[0] not in self.seen:
                self.seen.add(both[0])
                return both[group], group, look

    def trained(self, count: int, rho: float) -> list[tuple[str, str]]:
        """Labelled by the word and, at rho > 0, by the group where the word says little."""
        result = []
        for _ in range(count):
            text, group, look = self.text()
            side, strength = self.looks[look]
            push = rho * PUSH * (1 if group == 0 else -1) if strength == WEAK else 0.0
            yes = self.chance.random() < 0.5 + side * strength + push
            result.append((text, LABELS[yes]))
        return result

    def label_texts(self, count: int, tag: str) -> tuple[LabelledExample, ...]:
        """Labelled by the word alone."""
        texts = [self.text() for _ in range(count)]
        return tuple(
            LabelledExample(f"{tag}{i}", text, LABELS[self.looks[look][0] > 0])
            for i, (text, _, look) in enumerate(texts)
        )


def run(rho: float, seed: int) -> dict:
    """One classifier, tuned."""
    organism = make_organism("bert", 0.0)
    base, words, sample = organism.grow(), lexicon_of(organism), Drawn(organism.language, seed)
    rows = sample.trained(TRAINED, rho)
    dev, test = sample.label_texts(EVALUATED, "dev"), sample.label_texts(EVALUATED, "test")
    began = time.perf_counter()
    with TemporaryDirectory() as scratch:
        folder = Path(scratch, "classifier")
        finetune(base, rows, LABELS, folder, config=replace(TUNING, seed=seed))
        lm = load(folder)
        trained = time.perf_counter() - began
        gains = [
            ControlledDifference(Counterfactual(texts, lexicon=words)) for texts in (dev, test)
        ]
        task = BiasUtilityTask(*gains, *(Accuracy(texts) for texts in (dev, test)))
        pairs = pairs_from_task(lm, task.bias, lexicon=words).pairs
        output = select_edit_for_task(
            lm,
            task,
            pairs,
            limit=UtilityLimit(worse="lower"),
            inference=replace(INFERENCE, seed=seed),
        ).report
    return {
        "rho": rho,
        "seed": seed,
        "seconds": {"training": trained, "all": time.perf_counter() - began},
        "base": shown(output.base),
        "accuracy": shown(output.base_utility),
        "tried": len(output.candidates),
        "eligible": len(output.eligible),
        "chosen": output.chosen,
        "recommended": output.is_recommended,
        "gain on test": shown(output.on_test and output.on_test.gain),
        "loss on test": shown(output.on_test and output.on_test.loss),
        "why": output.reason,
    }


def shown(estimate) -> list[float] | None:
    """Value and interval."""
    if estimate is None:
        return None
    return [estimate.value, estimate.interval.low, estimate.interval.high]


def summary(rows: list[dict]) -> dict:
    """How often something is recommended."""
    hits = sum(row["recommended"] for row in rows)
    interval = proportion_interval(hits, len(rows))
    return {"runs": len(rows), "recommended": hits, "interval": [interval.low, interval.high]}


def main() -> None:
    """Run what is missing, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--planted", type=int, default=10, help="Runs with a planted dependence.")
    parser.add_argument("--even", type=int, default=40, help="Runs without one.")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    result: dict[str, list[dict]] = {"planted": [], "even": []}
    for kind, rho, count in (("planted", 1.0, given.planted), ("even", 0.0, given.even)):
        for seed in range(count):
            path = given.folder / f"{kind}-{seed}.json"
            if not path.exists():
                write_atomic(str(path), json.dumps(run(rho, seed)).encode())
            result[kind].append(json.loads(path.read_bytes()))
    output = {kind: summary(rows) for kind, rows in result.items() if rows}
    print(json.dumps(output | {"runs": result}, indent=1))


if __name__ == "__main__":
    main()
