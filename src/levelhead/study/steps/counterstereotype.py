"""The counter-stereotype experiment with a map's heads, and one of its pairs as a picture."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator

from levelhead.data.lexicons.published import any_lexicon
from levelhead.explain.attention.counterstereotype import CounterStereotype, counterstereotype
from levelhead.explain.attention.example import Example, example
from levelhead.explain.attention.pair_sources import pairs_from, templated
from levelhead.explain.attention.pairs import attribute_first, drawn
from levelhead.study.row import RowCells, estimate_cells, interval_cells, p_cells
from levelhead.study.session import Step, Work
from levelhead.study.steps.config import Count, Reference, Strict, as_tuple, map_named
from levelhead.study.steps.head_maps import Located
from levelhead.study.steps.kinds import StepDefinition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from levelhead.explain.attention.pairs import Pairs
    from levelhead.locate.head_map import HeadMap
    from levelhead.models.lm import LM


class Explained(Strict):
    """The counter-stereotype experiment with a map's heads."""

    map: str
    pairs: str | None = None
    """A data set, a file or a folder of `levelhead mine`."""
    frames: str | None = None
    """Instead: a lexicon whose words are put into frames."""
    n: Count = 500
    placebo: str | None = "gender-en"
    """A lexicon whose words of one group may stand for each other; "none": no control."""
    off: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ("colours", "sports")

    def references(self) -> Iterator[Reference]:
        """The names that it takes from elsewhere in the study."""
        yield map_named(self.map)


def counterstereotype_steps(work: Work) -> Iterator[Step]:
    """The experiment with the heads of a map, and its picture."""
    for name, row in work.plan.rows(Explained).items():
        after = (f"map.{row.map}",)
        yield Step(f"explain.{name}", partial(explained_of, work, name), after)
        yield Step(f"example.{name}", partial(exampled_of, work, name), after)


def explained_of(work: Work, name: str) -> CounterStereotype:
    """The counter-stereotype experiment."""
    row, heads, lm, pairs = _explained(work, name)
    placebo = None if row.placebo in (None, "none") else row.placebo
    words = None if placebo is None else any_lexicon(placebo).sha256
    told = {"map": heads.content_hash, "row": row.model_dump(), "placebo": words}
    told["pairs"] = dict(pairs.data)
    return work.kept(
        CounterStereotype,
        told,
        lambda: counterstereotype(
            lm,
            pairs,
            biased=heads.positive(),
            regular=heads.negative(),
            n=row.n,
            off=row.off,
            placebo=placebo,
            inference=work.inference,
        ),
    )


def exampled_of(work: Work, name: str) -> Example:
    """Figure 3: the first pair of the draw, not the one that looks best."""
    row, heads, lm, pairs = _explained(work, name)
    told = {"map": heads.content_hash, "row": row.model_dump(), "pairs": dict(pairs.data)}

    def make() -> Example:
        own = attribute_first(pairs) if lm.is_causal else pairs
        pair = drawn(own, 2, seed=work.plan.seed, off=row.off).pairs[0]
        return example(lm, pair, biased=heads.top(1), regular=heads.bottom(1))

    return work.kept(Example, told, make)


def _explained(work: Work, name: str) -> tuple[Explained, HeadMap, LM, Pairs]:
    row = work.plan.rows(Explained)[name]
    heads, lm = work.map(row.map), work.model(work.plan.rows(Located)[row.map].model)
    if row.frames:
        return row, heads, lm, templated(any_lexicon(row.frames))
    return row, heads, lm, pairs_from(row.pairs or "")


def counterstereotype_rows(one: CounterStereotype) -> Iterator[RowCells]:
    """The numbers of a result, for the table of a study."""
    for change in (one.attention, one.weighted):
        for group in change.groups:
            for estimate in (group.original, group.counter, group.change):
                yield estimate_cells(f"{group.group} heads", estimate)
            told = {"value": group.paper.t, "n": group.paper.n, **p_cells(group.paper.p)}
            yield {"name": f"{group.group} heads", "what": "t as the paper's", **told}
        several = (change.difference, change.same_length, change.placebo, change.net)
        for beside in several:
            if beside is not None:
                yield estimate_cells("biased - regular", beside)
        if change.relabelled is not None:
            random = change.relabelled
            told = {
                "value": random.difference,
                **interval_cells(random.random),
                **p_cells(random.p),
            }
            what = f"{change.weighting}: random groups of heads"
            yield {"name": "biased - regular", "what": what, **told}


def _no_rows(picture: Example) -> Iterator[RowCells]:
    yield from ()


COUNTERSTEREOTYPE = StepDefinition(
    Explained,
    counterstereotype_steps,
    {CounterStereotype: counterstereotype_rows, Example: _no_rows},
)
