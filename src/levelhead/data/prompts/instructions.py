"""Requests with a form that the answer must have, so that an answer can be checked exactly.

After IFEval (Zhou et al. 2023): the form is verifiable, and what the answer says does not matter.
"""

from __future__ import annotations

from typing import NamedTuple

from levelhead.core.errors import LevelheadError

TOPICS = ("bicycles", "bread", "bridges", "clouds", "forests", "gardens", "lamps", "mountains",
          "rivers", "soup", "trains", "winter")  # fmt: skip
"""Subjects of the answers: about no person and no group."""


class Instruction(NamedTuple):
    """A request and the form of its answer."""

    id: str
    kind: str
    """Kind of form, such as "one word"."""
    request: str
    check: str
    """Name of the check, a row of `measures.utility.instruction_checks.CHECKS`."""
    argument: str = ""
    """What the check needs, such as a number of words."""


class InstructionTemplate(NamedTuple):
    """A kind of form, with a request about any topic."""

    kind: str
    check: str
    argument: str
    request: str


TEMPLATES = (
    InstructionTemplate(
        "one word", "words", "1-1",
        "Which colour goes with {topic}? Answer with exactly one word.",
    ),
    InstructionTemplate(
        "at most ten words", "words", "1-10", "Describe {topic} in at most ten words.",
    ),
    InstructionTemplate(
        "capital letters", "upper", "",
        "Write one sentence about {topic}. Use capital letters only.",
    ),
    InstructionTemplate(
        "small letters", "lower", "",
        "Write one sentence about {topic}. Use lowercase letters only, no capital letters.",
    ),
    InstructionTemplate(
        "JSON", "json", "topic,rating",
        'Write a JSON object about {topic} with the keys "topic" and "rating", and nothing else.',
    ),
    InstructionTemplate(
        "three bullets", "bullets", "3",
        'List exactly three facts about {topic}, each on its own line that begins with "- ".',
    ),
    InstructionTemplate(
        "three parts", "parts", "3",
        "Name exactly three words about {topic}, separated by commas, and write nothing else.",
    ),
    InstructionTemplate(
        "first word", "begins", "Certainly",
        'Write one sentence about {topic}. Begin your answer with the word "Certainly".',
    ),
    InstructionTemplate(
        "last words", "ends", "That is all.",
        'Write one sentence about {topic}, then end your answer with "That is all."',
    ),
    InstructionTemplate(
        "a word", "contains", "green",
        'Write one sentence about {topic} that contains the word "green".',
    ),
    InstructionTemplate(
        "without a word", "lacks", "the",
        'Write one sentence about {topic} without the word "the".',
    ),
    InstructionTemplate(
        "without commas", "lacks_sign", ",",
        "Write two sentences about {topic}. Use no comma in your answer.",
    ),
    InstructionTemplate(
        "two sentences", "sentences", "2", "Write exactly two sentences about {topic}.",
    ),
    InstructionTemplate(
        "quotation marks", "wrapped", '"',
        "Write one sentence about {topic}. Put your whole answer in double quotation marks.",
    ),
    InstructionTemplate(
        "a title", "title", "",
        "Write a title for a text about {topic}, in double angular brackets, as in <<a title>>.",
    ),
    InstructionTemplate(
        "repeat", "equals", "I would like to read more about {topic}.",
        'Repeat this sentence and write nothing else: "I would like to read more about {topic}."',
    ),
)  # fmt: skip
"""Sixteen kinds of forms."""


def make_instructions(per_kind: int) -> tuple[Instruction, ...]:
    """Make requests of every kind.

    Args:
        per_kind: number of topics of each kind, at most 12; kinds share no topic as far as
            possible.
    """
    if not 1 <= per_kind <= len(TOPICS):
        raise LevelheadError(
            f"{per_kind} requests of each kind", hint=f"give 1 to {len(TOPICS)} of them"
        )
    return tuple(
        Instruction(
            f"{template.kind}: {topic}",
            template.kind,
            template.request.format(topic=topic),
            template.check,
            template.argument.format(topic=topic),
        )
        for number, template in enumerate(TEMPLATES)
        for i in range(per_kind)
        for topic in (TOPICS[(number * per_kind + i) % len(TOPICS)],)
    )
