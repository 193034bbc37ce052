"""Levels of intervention and their 74 settings, as data (Dawkins et al. 2024, section 4).

    sent              what the final classifier is given ([SENT])
    last              what the last layer returns ([layer 12] of 12), and sent
    penultimate       what the layer before it returns ([layer 11]), and the above
    penultimate+attn  queries, keys and values of every head in that layer, and the above

"Wherever an intervention is applied, all following interventions are also applied." At each but the
attention a setting chooses hard or weighted, and one or two dimensions; sent has one, and so has
the attention, which is always hard.
"""

from __future__ import annotations

import re
from itertools import product
from typing import Literal, Self, cast, get_args

from pydantic import model_validator

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.core.results import Record

Level = Literal["sent", "last", "penultimate", "penultimate+attn"]
Part = Literal["attn", "penultimate", "last", "sent"]

LEVELS: dict[Level, tuple[Part, ...]] = {
    # What is edited at a level, in the order in which a forward comes to it.
    "sent": ("sent",),
    "last": ("last", "sent"),
    "penultimate": ("penultimate", "last", "sent"),
    "penultimate+attn": ("attn", "penultimate", "last", "sent"),
}


class Step(Record):
    """How one projection is made."""

    weighted: bool
    """The paper's n: by the share of variance each direction explains, or hard."""
    dims: Literal[1, 2]
    """The paper's c + 1."""


STEPS: tuple[Step, ...] = (
    # In the order of the paper's (n, c): 0,0 0,1 1,0 1,1.
    Step(weighted=False, dims=1),
    Step(weighted=False, dims=2),
    Step(weighted=True, dims=1),
    Step(weighted=True, dims=2),
)
SENT_STEPS = (STEPS[0], STEPS[2])
ATTENTION_STEP = STEPS[0]


class Setting(Record):
    """A level, and how each of its projections is made.

    >>> Setting.named("penultimate 0,0,1,1,1").last
    Step(weighted=True, dims=2)
    """

    level: Level
    penultimate: Step | None = None
    last: Step | None = None
    sent: Step | None = None
    """None for models without a pooled vector, whose levels start at `last`."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        parts = LEVELS[self.level]
        for part in ("penultimate", "last"):
            if (getattr(self, part) is None) == (part in parts):
                raise ValueError(f"level {self.level} edits {', '.join(parts)}, and nothing else")
        if self.sent is None and self.level == "sent":
            raise ValueError("level sent edits sent")
        if self.sent is not None and self.sent.dims != 1:
            raise ValueError("sent has one dimension")
        return self

    @property
    def parts(self) -> tuple[Part, ...]:
        """What is edited, in the order of a forward."""
        return tuple(one for one in LEVELS[self.level] if one != "sent" or self.sent is not None)

    def step(self, part: Part) -> Step:
        """How a part is edited."""
        steps = {
            "attn": ATTENTION_STEP,
            "penultimate": self.penultimate,
            "last": self.last,
            "sent": self.sent,
        }
        step = steps[part] if part in self.parts else None
        if step is None:
            raise UnknownName(f"part of {self}", part, self.parts)
        return step

    @property
    def name(self) -> str:
        """The level and the paper's tuple: n and c of penultimate, n and c of last, n of sent.

        (The captions of the paper's Tables 5 and 7 say n10 and c10 for those of the last layer.)
        """
        marks = [
            mark
            for step in (self.penultimate, self.last)
            if step is not None
            for mark in (int(step.weighted), step.dims - 1)
        ]
        marks += [] if self.sent is None else [int(self.sent.weighted)]
        return f"{self.level} {','.join(map(str, marks))}"

    def __str__(self) -> str:
        return self.name

    @classmethod
    def named(cls, name: str) -> Self:
        """The setting of a name, such as "last 0,1,1"."""
        level, _, told = name.partition(" ")
        if level not in get_args(Level):
            raise UnknownName("level", level, get_args(Level))
        marks = re.findall("[01]", told)
        sizes = {"sent": 0, "last": 2}.get(level, 4)
        if re.sub(r"[01,\s()]", "", told) or len(marks) not in {sizes or 1, sizes + 1}:
            raise LevelheadError(
                f"{told!r} are no {sizes + 1} marks of the level {level}",
                mend="write n,c of penultimate, n,c of last and n of sent, as far as the level "
                "goes: 'sent 1', 'last 0,1,1', 'penultimate 0,0,1,1,1'; n: 1 weighted, c: 1 two "
                "dimensions",
            )
        bits = [int(mark) for mark in marks]
        steps = [STEPS[2 * n + c] for n, c in zip(bits[:sizes:2], bits[1:sizes:2], strict=True)]
        return cls(
            level=cast("Level", level),
            penultimate=steps[0] if sizes == 4 else None,
            last=steps[-1] if steps else None,
            sent=SENT_STEPS[bits[-1]] if len(bits) % 2 else None,
        )


def grid(*, sent: bool = True) -> tuple[Setting, ...]:
    """Every setting: 2 of sent, 8 of last, 32 of penultimate, 32 with the attention; 74.

    Args:
        sent: False for models without a pooled vector: 4 + 16 + 16 settings that start at `last`.

    >>> [str(setting) for setting in grid()[:4]], len(grid()), len(grid(sent=False))
    (['sent 0', 'sent 1', 'last 0,0,0', 'last 0,0,1'], 74, 36)
    """
    ends: tuple[Step | None, ...] = SENT_STEPS if sent else (None,)
    found = [Setting(level="sent", sent=end) for end in ends if end is not None]
    found += [Setting(level="last", last=last, sent=end) for last, end in product(STEPS, ends)]
    deep: tuple[Level, ...] = ("penultimate", "penultimate+attn")
    found += [
        Setting(level=level, penultimate=inner, last=last, sent=end)
        for level in deep
        for inner, last, end in product(STEPS, STEPS, ends)
    ]
    return tuple(found)
