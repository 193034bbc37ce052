"""The compared groups of heads, and the provenance of results on them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.results import Provenance

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from levelhead.core.run_context import Inference
    from levelhead.explain.attention.pairs import CounterPair
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site

Group = Literal["biased", "regular"]
EQUATION = "Yang et al. 2025, section 5.2"


class HeadGroups(NamedTuple):
    """Heads with a positive score and heads with a negative one, `Site("head_out", layer, head)`.

    Their values are concatenated, those of biased heads first.
    """

    biased: Sequence[Site]
    regular: Sequence[Site]

    @property
    def sites(self) -> tuple[Site, ...]:
        """The heads of both groups."""
        return (*self.biased, *self.regular)

    @property
    def columns(self) -> dict[Group, tuple[int, ...]]:
        """Columns of each group's heads in `sites`."""
        split = len(self.biased)
        return {
            "biased": tuple(range(split)),
            "regular": tuple(range(split, split + len(self.regular))),
        }

    @property
    def as_json(self) -> dict[str, list[list[int]]]:
        """The heads as plain JSON: [layer, head], counted from 0."""
        return {
            name: [[self.sites[i].layer, int(self.sites[i].head or 0)] for i in columns]
            for name, columns in self.columns.items()
        }

    def select(self, values: torch.Tensor) -> torch.Tensor:
        """Select `[..., heads]` from `[..., layers, heads]`."""
        layers = [site.layer for site in self.sites]
        return values[..., layers, [int(site.head or 0) for site in self.sites]]


def validate_head_groups(lm: LM, heads: HeadGroups) -> None:
    """Raise an error for an empty group, for heads that the model lacks, and for repeated heads."""
    for name, group_sites in heads._asdict().items():
        if not group_sites:
            raise NotMeasurableError(
                f"there is no {name} head",
                hint="give heads of both signs: the experiment compares them",
            )
    validate_heads(lm, heads.sites)


def validate_heads(lm: LM, sites: Sequence[Site]) -> tuple[Site, ...]:
    """Raise an error for heads that the model lacks, and for repeated heads."""
    if not sites:
        raise LevelheadError("there is no head", hint="name at least one")
    for site in sites:
        if site.stream != "head_out" or site.head is None:
            raise LevelheadError(f"{site} is no head", hint='give Site("head_out", layer, head)')
        lm.layout.require_site(site)
    # A head in both groups would cancel in their difference and weaken it unnoticed.
    duplicates = [site for site, times in Counter(sites).items() if times > 1]
    if duplicates:
        raise LevelheadError(
            f"{duplicates[0]} is named twice", hint="name each head in one group, once"
        )
    return tuple(sites)


def hash_counter_pairs(pairs: Sequence[CounterPair]) -> str:
    """SHA-256 of the queried pairs."""
    return content_hash(
        [[pair.id, pair.target_word, *pair.original, *pair.counter] for pair in pairs]
    )


def make_provenance(
    lm: LM,
    *,
    data: Mapping[str, str],
    settings: Mapping[str, object],
    inference: Inference | None = None,
) -> Provenance:
    """Provenance of a result; `settings` are those of the result alone."""
    all_settings: dict[str, object] = {
        "model": {name: value for name, value in lm.settings.items() if name != "batch_shrunk_to"}
    }
    if inference is not None:
        all_settings |= {"resamples": inference.resamples, "permutations": inference.permutations}
        all_settings |= {"level": inference.level}
    return Provenance.of(
        lm.identity.name,
        lm.content_hash,
        revision=lm.identity.revision,
        edits=tuple(edit.content_hash for edit in lm.edits),
        data=data,
        equation=EQUATION,
        seed=None if inference is None else inference.seed,
        settings=all_settings | dict(settings),
    )
