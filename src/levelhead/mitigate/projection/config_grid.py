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

from levelhead.core.errors import LevelheadError, UnknownNameError, require_option
from levelhead.core.results import Record

EditPoint = Literal["sent", "last", "penultimate", "penultimate+attn"]
SiteGroup = Literal["attn", "penultimate", "last", "sent"]

EDIT_POINTS: dict[EditPoint, tuple[SiteGroup, ...]] = {
    # What is edited at a level, in the order in which a forward comes to it.
    "sent": ("sent",),
    "last": ("last", "sent"),
    "penultimate": ("penultimate", "last", "sent"),
    "penultimate+attn": ("attn", "penultimate", "last", "sent"),
}


class ProjectionRule(Record):
    """Settings of one projection."""

    weighted: bool
    """The paper's n: weighted by the share of variance of each direction, or hard."""
    n_components: Literal[1, 2]
    """The paper's c + 1."""


ALL_STEPS: tuple[ProjectionRule, ...] = (
    # In the order of the paper's (n, c): 0,0 0,1 1,0 1,1.
    ProjectionRule(weighted=False, n_components=1),
    ProjectionRule(weighted=False, n_components=2),
    ProjectionRule(weighted=True, n_components=1),
    ProjectionRule(weighted=True, n_components=2),
)
POOLED_STEPS = (ALL_STEPS[0], ALL_STEPS[2])
ATTENTION_STEP = ALL_STEPS[0]


class ProjectionConfig(Record):
    """A level, and the setting of each of its projections.

    >>> ProjectionConfig.from_name("penultimate 0,0,1,1,1").last
    ProjectionRule(weighted=True, n_components=2)
    """

    edit_point: EditPoint
    penultimate: ProjectionRule | None = None
    last: ProjectionRule | None = None
    pooled: ProjectionRule | None = None
    """None for models without a pooled vector, whose levels start at `last`."""

    @model_validator(mode="after")
    def _check_complete(self) -> Self:
        groups = EDIT_POINTS[self.edit_point]
        # A level names all sites after it, so a part too many is as wrong as one too few.
        for group in ("penultimate", "last"):
            if (getattr(self, group) is None) == (group in groups):
                raise ValueError(
                    f"level {self.edit_point} edits {', '.join(groups)}, and nothing else"
                )
        if self.pooled is None and self.edit_point == "sent":
            raise ValueError("level sent edits sent")
        if self.pooled is not None and self.pooled.n_components != 1:
            raise ValueError("sent has one dimension")
        return self

    @property
    def site_groups(self) -> tuple[SiteGroup, ...]:
        """The edited parts, in the order of a forward pass."""
        return tuple(
            group
            for group in EDIT_POINTS[self.edit_point]
            if group != "sent" or self.pooled is not None
        )

    def step(self, group: SiteGroup) -> ProjectionRule:
        """The setting of a part."""
        steps = {
            "attn": ATTENTION_STEP,
            "penultimate": self.penultimate,
            "last": self.last,
            "sent": self.pooled,
        }
        step = steps[group] if group in self.site_groups else None
        if step is None:
            raise UnknownNameError(f"part of {self}", group, self.site_groups)
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
            for mark in (int(step.weighted), step.n_components - 1)
        ]
        marks += [] if self.pooled is None else [int(self.pooled.weighted)]
        return f"{self.edit_point} {','.join(map(str, marks))}"

    def __str__(self) -> str:
        return self.name

    @classmethod
    def from_name(cls, name: str) -> Self:
        """The setting with a name such as "last 0,1,1"."""
        edit_point, _, digits = name.partition(" ")
        require_option("level", edit_point, get_args(EditPoint))
        marks = re.findall("[01]", digits)
        # The marks before that of sent, which models without a pooled vector do not have.
        sizes = {"sent": 0, "last": 2}.get(edit_point, 4)
        if re.sub(r"[01,\s()]", "", digits) or len(marks) not in {sizes or 1, sizes + 1}:
            raise LevelheadError(
                f"{digits!r} are no {sizes + 1} marks of the level {edit_point}",
                hint="write n,c of penultimate, n,c of last and n of sent, as far as the level "
                "goes: 'sent 1', 'last 0,1,1', 'penultimate 0,0,1,1,1'; n: 1 weighted, c: 1 two "
                "dimensions",
            )
        bits = [int(mark) for mark in marks]
        # ALL_STEPS is in the order of (n, c), so its index is 2 n + c.
        steps = [ALL_STEPS[2 * n + c] for n, c in zip(bits[:sizes:2], bits[1:sizes:2], strict=True)]
        return cls(
            edit_point=cast("EditPoint", edit_point),
            penultimate=steps[0] if sizes == 4 else None,
            last=steps[-1] if steps else None,
            pooled=POOLED_STEPS[bits[-1]] if len(bits) % 2 else None,
        )


def projection_grid(*, pooled: bool = True) -> tuple[ProjectionConfig, ...]:
    """All settings: 2 of sent, 8 of last, 32 of penultimate, 32 with the attention; 74.

    Args:
        pooled: False for models without a pooled vector: 4 + 16 + 16 settings that start at `last`.

    Examples:
        >>> [str(config) for config in projection_grid()[:4]]
        ['sent 0', 'sent 1', 'last 0,0,0', 'last 0,0,1']
        >>> len(projection_grid()), len(projection_grid(pooled=False))
        (74, 36)
    """
    ends: tuple[ProjectionRule | None, ...] = POOLED_STEPS if pooled else (None,)
    configs = [ProjectionConfig(edit_point="sent", pooled=end) for end in ends if end is not None]
    configs += [
        ProjectionConfig(edit_point="last", last=last, pooled=end)
        for last, end in product(ALL_STEPS, ends)
    ]
    deep: tuple[EditPoint, ...] = ("penultimate", "penultimate+attn")
    configs += [
        ProjectionConfig(edit_point=edit_point, penultimate=inner, last=last, pooled=end)
        for edit_point in deep
        for inner, last, end in product(ALL_STEPS, ALL_STEPS, ends)
    ]
    return tuple(configs)
