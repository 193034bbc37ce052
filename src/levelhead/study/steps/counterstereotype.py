"""The counter-stereotype experiment with a map's heads, and one of its pairs as an example."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator

from levelhead.data.lexicons.published import resolve_lexicon
from levelhead.explain.attention.counterstereotype import CounterStereotypeResult, counterstereotype
from levelhead.explain.attention.example import AttentionExample, make_attention_example
from levelhead.explain.attention.head_groups import HeadGroups
from levelhead.explain.attention.pair_sources import counterstereotype_pairs, pairs_from_templates
from levelhead.explain.attention.pairs import attribute_first, sample_pairs
from levelhead.study.session import StudySession, StudyStep
from levelhead.study.steps.config import Count, Reference, StrictConfig, as_tuple, map_reference
from levelhead.study.steps.head_maps import HeadMapStep
from levelhead.study.steps.kinds import StepDefinition
from levelhead.study.table_row import RowCells, estimate_cells, interval_cells, p_cells

if TYPE_CHECKING:
    from collections.abc import Iterator

    from levelhead.explain.attention.pairs import CounterPairs
    from levelhead.locate.head_map import HeadMap
    from levelhead.models.lm import LM


class CounterstereotypeStep(StrictConfig):
    """The counter-stereotype experiment with a map's heads."""

    map: str
    pairs: str | None = None
    """Data set, file, or folder of `levelhead data mine`."""
    frames: str | None = None
    """Alternative: lexicon whose words are inserted into template sentences."""
    n: Count = 500
    placebo: str | None = "gender-en"
    """Lexicon for placebo counterfactuals, which swap words of one group; "none": no control."""
    control_categories: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = (
        "colours",
        "sports",
    )

    def references(self) -> Iterator[Reference]:
        """The names of other tables of the study that this row uses."""
        yield map_reference(self.map)


def counterstereotype_steps(session: StudySession) -> Iterator[StudyStep]:
    """Yield the experiment with a map's heads, and its example."""
    for name, row in session.config.rows(CounterstereotypeStep).items():
        after = (f"map.{row.map}",)
        yield StudyStep(
            f"explain.{name}", partial(run_counterstereotype_step, session, name), after
        )
        yield StudyStep(
            f"example.{name}", partial(run_attention_example_step, session, name), after
        )


def run_counterstereotype_step(session: StudySession, name: str) -> CounterStereotypeResult:
    """Run the counter-stereotype experiment."""
    row, head_map, lm, pairs = _resolve_step(session, name)
    placebo = None if row.placebo in (None, "none") else row.placebo
    # By content: a changed lexicon of the same name gives other placebos.
    words = None if placebo is None else resolve_lexicon(placebo).sha256
    inputs = {"map": head_map.content_hash, "row": row.model_dump(), "placebo": words}
    inputs["pairs"] = dict(pairs.data)
    return session.load_or_compute(
        CounterStereotypeResult,
        inputs,
        lambda: counterstereotype(
            lm,
            pairs,
            HeadGroups(head_map.positive_heads(), head_map.negative_heads()),
            n_pairs=row.n,
            control_categories=row.control_categories,
            placebo=placebo,
            inference=session.inference,
        ),
    )


def run_attention_example_step(session: StudySession, name: str) -> AttentionExample:
    """Make Figure 3 from the first sampled pair, so that nobody selects a striking one."""
    row, head_map, lm, pairs = _resolve_step(session, name)
    inputs = {"map": head_map.content_hash, "row": row.model_dump(), "pairs": dict(pairs.data)}

    def make() -> AttentionExample:
        # A causal model attends only to earlier words.
        oriented_pairs = attribute_first(pairs) if lm.is_causal else pairs
        pair = sample_pairs(
            oriented_pairs, 2, seed=session.config.seed, control_categories=row.control_categories
        ).pairs[0]
        return make_attention_example(lm, pair, HeadGroups(head_map.top(1), head_map.bottom(1)))

    return session.load_or_compute(AttentionExample, inputs, make)


def _resolve_step(
    session: StudySession, name: str
) -> tuple[CounterstereotypeStep, HeadMap, LM, CounterPairs]:
    row = session.config.rows(CounterstereotypeStep)[name]
    head_map, lm = (
        session.head_map(row.map),
        session.model(session.config.rows(HeadMapStep)[row.map].model),
    )
    if row.frames:
        return row, head_map, lm, pairs_from_templates(resolve_lexicon(row.frames))
    return row, head_map, lm, counterstereotype_pairs(row.pairs or "")


def counterstereotype_rows(result: CounterStereotypeResult) -> Iterator[RowCells]:
    """Yield the rows of a result for the study's table."""
    for change in (result.attention, result.weighted):
        for group in change.groups:
            for estimate in (group.original, group.counter, group.change):
                yield estimate_cells(f"{group.group} heads", estimate)
            cells: RowCells = {
                "value": group.paper_t_test.t,
                "n": group.paper_t_test.n,
                **p_cells(group.paper_t_test.p),
            }
            yield {"name": f"{group.group} heads", "what": "t as the paper's", **cells}
        differences = (change.difference, change.same_length, change.placebo, change.net)
        for difference in differences:
            if difference is not None:
                yield estimate_cells("biased - regular", difference)
        if change.head_permutation_test is not None:
            random = change.head_permutation_test
            cells = {
                "value": random.difference,
                **interval_cells(random.random_interval),
                **p_cells(random.p),
            }
            what = f"{change.weighting}: random groups of heads"
            yield {"name": "biased - regular", "what": what, **cells}


def _no_rows(example: AttentionExample) -> Iterator[RowCells]:
    yield from ()


COUNTERSTEREOTYPE = StepDefinition(
    CounterstereotypeStep,
    counterstereotype_steps,
    {CounterStereotypeResult: counterstereotype_rows, AttentionExample: _no_rows},
)
