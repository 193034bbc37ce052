"""Train a base model further on instructions: the pair of Yang et al. 2025, section 7, made here.

    LEVELHEAD_DATA=... python tools/instructed.py BASE FOLDER [--steps N]

Instructions are questions about texts of GLUE (CoLA, RTE, MRPC) with their answers, as in FLAN (Wei
et al. 2022). FOLDER gets a plain checkpoint; name it in LEVELHEAD_INSTRUCTED for
papers/yang2025/study-chat.toml. A killed training resumes.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import TYPE_CHECKING

from levelhead.data.records import LabelledExample
from levelhead.data.tasks import get_task_spec
from levelhead.models.training.configs import ContinuedPretrainingConfig
from levelhead.models.training.continued_pretraining import continue_pretraining

if TYPE_CHECKING:
    from collections.abc import Iterator

QUESTIONS = {
    "cola": (
        "Is this sentence acceptable? {0}",
        {"acceptable": "Yes, it is.", "": "No, it is not."},
    ),
    "rte": ("{0} Does it follow that {1}", {"entailment": "Yes, it does.", "": "No, it does not."}),
    "mrpc": (
        "Do these mean the same? {0} {1}",
        {"equivalent": "Yes, they do.", "": "No, they do not."},
    ),
}
"""Question and answers of a task, by label; empty: every other label."""
MAX_WORDS = 40
SEED = 0


def instructions() -> Iterator[str]:
    """Every question with its answer."""
    for task, (question, answers) in QUESTIONS.items():
        for example in get_task_spec(task).examples("train"):
            texts = (
                (example.text,)
                if isinstance(example, LabelledExample)
                else (example.first, example.second)
            )
            text = f"{question.format(*texts)} {answers.get(example.label, answers[''])}"
            if len(text.split()) <= MAX_WORDS:
                yield text


def main() -> None:
    """Train, and print the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=60)
    given = parser.parse_args()
    texts = sorted(instructions())
    random.Random(SEED).shuffle(texts)  # noqa: S311  # no secret
    config = ContinuedPretrainingConfig(
        steps=given.steps, batch_size=16, learning_rate=1e-4, threads=1, seed=SEED
    )
    folder = continue_pretraining(
        given.base, texts, given.folder, config=config, metadata={"how": "instructions of GLUE"}
    )
    print(f"{folder}: {len(texts)} instructions, {given.steps * config.batch_size} rows")


if __name__ == "__main__":
    main()
