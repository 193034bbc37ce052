"""Locate: which heads carry what a measure sees. Yang et al. 2025, section 3, with a second half.

The gradient ranks all heads on the find half; exact ablation of all of them, or of the first ones
of a large model, gives effects, intervals and p-values on the confirm half.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.core.results import Provenance
from levelhead.core.run_context import Inference, RunContext
from levelhead.locate.attribution.ablation import Variant
from levelhead.locate.attribution.gradient import gate_shape, gradient
from levelhead.locate.attribution.integrated_gradients import along_path
from levelhead.locate.attribution.mean_activations import means
from levelhead.locate.attribution.variants import vary
from levelhead.locate.effects import DRAWS, effects, rank_agreement
from levelhead.locate.head_map import (
    Ablation,
    By,
    Halves,
    HeadMap,
    Part,
    PartScore,
    SplitBy,
    site_of,
)
from levelhead.locate.validation.sign import Sign, orientation
from levelhead.locate.validation.split import halves
from levelhead.measures.metric import refuse_step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from levelhead.core.results import Estimate
    from levelhead.locate.attribution.variants import Variants
    from levelhead.locate.effects import Effects
    from levelhead.locate.head_map import Direction
    from levelhead.locate.validation.split import Half, Split
    from levelhead.measures.base import Measure
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site

Exact = int | Literal["all", "none"]
ALL_UP_TO = 160
"""Heads of which all are ablated; a larger model's best and worst are."""
BEST, WORST = 20, 5
EQUATION = {
    "gradient": "Yang et al. 2025, Eq. 4",
    "ablation": "Yang et al. 2025, Eq. 2 with m = 0, one part at a time",
    "path": "Yang et al. 2025, Eq. 4 along m = 0 to 1 (Sundararajan et al. 2017)",
}


def locate(
    lm: LM,
    measure: Measure,
    *,
    by: By = "gradient",
    parts: Sequence[Part] = ("heads",),
    ablation: Ablation = "zero",
    exact: Exact | None = None,
    split: Literal["auto"] | SplitBy = "auto",
    sign: Sign = "found",
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> HeadMap:
    """Score every head of a model by what it adds to a measure.

    Args:
        lm: the model, edited or not.
        measure: what its bias is measured by.
        by: "gradient" (Eq. 4), "ablation", or "path": the gradient integrated over masks from 0
            to 1.
        parts: heads, mlp, embeddings.
        ablation: what an ablated part hands on: nothing ("zero"), or its mean over all tokens.
        exact: how many of the highest scores are ablated; "all", "none"; by default all of at most
            160 parts, otherwise the 20 best and the 5 worst.
        split: how items are halved.
        sign: which way is bias; "found" on the find half.
        inference: seed, resamples and level.
        context: store, threads, progress and cancellation.
    """
    _check(by, parts, ablation, exact)
    work = _Work(lm, measure, inference, context)
    if by != "ablation":
        refuse_step(measure.headline)
    readouts = measure.read(lm, context=context)
    cut = halves(measure, readouts[0], by=split, seed=work.inference.seed)
    find = cut.find.of(readouts[0])
    found = measure.estimated(find, measure.headline, work.inference, "find half")
    direction = orientation(measure.headline, found, sign)
    wanted = [
        (part, layer, head)
        for part in parts
        for layer in range(gate_shape(lm.anatomy, part)[0])
        for head in range(gate_shape(lm.anatomy, part)[1])
    ]
    places = {site_of(*one[:2], one[2] if one[0] == "heads" else None): one for one in wanted}
    ablated: Variants | None = None
    told: tuple[str, ...] = ()
    if by == "ablation":
        ablated = work.ablated(readouts[0], list(places), cut, ablation)
        values = work.effects(ablated, cut.find, direction, "find").values.tolist()
        scores = dict(zip(places, values, strict=True))
    else:
        scores, told = work.scores(by, find, places, parts, direction)
    # Without embeddings all words are one vector: there is nothing to compare.
    possible = [site for site in places if site.stream != "embeddings"]
    tested = _tested(scores, "all" if by == "ablation" else exact)
    tested = [site for site in tested if site in possible]
    if ablated is None and tested:
        ablated = work.ablated(readouts[0], tested, cut, ablation)
    judged = work.judged(ablated, cut, direction, [scores[site] for site in tested])
    estimates = dict(zip(tested, judged.estimates, strict=True))
    if cut.by == "none" and len(tested) < len(possible):
        # Chosen on the items they are judged on: the family they compete in is not theirs.
        estimates = {
            site: one and one.model_copy(update={"p": None}) for site, one in estimates.items()
        }
    confirm = None
    if cut.by != "none":
        half = cut.confirm.of(readouts[0])
        confirm = measure.estimated(half, measure.headline, work.inference, "confirm half")
    return HeadMap(
        by=by,
        ablation=ablation,
        layers=lm.anatomy.layers,
        heads_a_layer=lm.anatomy.heads,
        measure=measure.name,
        direction=direction,
        halves=Halves(by=cut.by, seed=cut.seed, claim=cut.claim, find=found, confirm=confirm),
        scores=tuple(
            _score(place, scores[site], estimates.get(site)) for site, place in places.items()
        ),
        agreement=judged.agreement if by != "ablation" else None,
        replication=judged.replication if cut.by != "none" else None,
        measurement=measure.measured(
            lm, readouts, inference=work.inference, threads=context.threads
        ),
        notes=told + _notes(estimates, len(possible), find, cut, readouts[0]),
        provenance=work.provenance(by, parts, ablation, exact, cut, sign, find),
    )


def without_each(
    lm: LM,
    measure: Measure,
    readouts: Readouts,
    sites: Sequence[Site],
    *,
    cut: Split,
    ablation: Ablation = "zero",
    context: RunContext = RunContext(),
) -> Variants:
    """What a model says without each of some parts, one at a time."""
    own: dict[Site, torch.Tensor] = {}
    if ablation == "mean":
        own = means(lm, measure, readouts, sites)
    return vary(
        lm,
        measure,
        readouts,
        [Variant((site,), None if ablation == "mean" else 0.0) for site in sites],
        blocks=cut.block,
        means=own,
        context=context,
    )


class _Judged(NamedTuple):
    estimates: tuple[Estimate | None, ...] = ()
    agreement: Estimate | None = None
    replication: Estimate | None = None


@dataclass(frozen=True, eq=False)
class _Work:
    """What all steps share."""

    lm: LM
    measure: Measure
    inference: Inference
    context: RunContext

    def scores(
        self,
        by: By,
        find: Readouts,
        places: Mapping[Site, tuple[Part, int, int]],
        parts: Sequence[Part],
        direction: Direction,
    ) -> tuple[dict[Site, float], tuple[str, ...]]:
        """The derivative by every mask, times the sign; and what is to be told of it."""
        told: tuple[str, ...] = ()
        if by == "path":
            path = along_path(self.lm, self.measure, find, parts=parts)
            grids = path.scores
            told = (
                f"contributions add up to {path.whole - path.without:.4g}: from "
                f"{path.without:.4g} with all these parts masked to {path.whole:.4g}; "
                f"{path.nodes} nodes, off by {abs(path.gap):.1g}",
            )
        else:
            shares = gradient(
                self.lm,
                self.measure,
                find,
                parts=parts,
                context=self.context,
            )
            grids = {part: shares.total(part) for part in parts}
        way = direction.sign or 1
        return {
            site: way * float(grids[part][layer, head])
            for site, (part, layer, head) in places.items()
        }, told

    def ablated(
        self, readouts: Readouts, sites: Sequence[Site], cut: Split, ablation: Ablation
    ) -> Variants:
        """What the model says without each of some parts."""
        return without_each(
            self.lm,
            self.measure,
            readouts,
            sites,
            cut=cut,
            ablation=ablation,
            context=self.context,
        )

    def effects(self, ablated: Variants, half: Half, direction: Direction, name: str) -> Effects:
        """The effects on a half."""
        return effects(
            self.measure,
            half.varied(ablated, None),
            [half.varied(ablated, i) for i in range(len(ablated.variants))],
            sign=direction.sign,
            inference=self.inference,
            name=f"effects, {name} half",
            draws=max(99, min(self.inference.resamples, DRAWS)),
        )

    def judged(
        self, ablated: Variants | None, cut: Split, direction: Direction, scores: Sequence[float]
    ) -> _Judged:
        """Effects on the confirm half; how scores agree with those of either half."""
        if ablated is None:
            return _Judged()
        names = [str(variant.sites[0]) for variant in ablated.variants]
        confirm = self.effects(ablated, cut.confirm, direction, "confirm")
        find = confirm
        if cut.by != "none":
            find = self.effects(ablated, cut.find, direction, "find")
        return _Judged(
            confirm.estimates(names, unit=self.measure.headline.unit),
            rank_agreement(scores, find, name="score and effect on the find half"),
            rank_agreement(scores, confirm, name="score and effect on the confirm half"),
        )

    def provenance(
        self,
        by: By,
        parts: Sequence[Part],
        ablation: Ablation,
        exact: Exact | None,
        cut: Split,
        sign: Sign,
        find: Readouts,
    ) -> Provenance:
        """Everything the map depends on."""
        lm = self.lm
        model = {name: value for name, value in lm.settings.items() if name != "batch_shrunk_to"}
        return Provenance.of(
            lm.identity.name,
            lm.content_hash,
            revision=lm.identity.revision,
            edits=tuple(edit.content_hash for edit in lm.edits),
            data=self.measure.data,
            equation=EQUATION[by],
            seed=self.inference.seed,
            settings={
                "measure": self.measure.settings,
                "asked": find.facts,
                "model": model,
                "parts": list(parts),
                "ablation": ablation,
                "exact": exact,
                "split": cut.by,
                "sign": sign,
                "threads": self.context.threads,
                "resamples": self.inference.resamples,
                "level": self.inference.level,
            },
        )


def _check(by: str, parts: Sequence[str], ablation: str, exact: Exact | None) -> None:
    for value, options, what in (
        (by, get_args(By), "way to locate"),
        (ablation, get_args(Ablation), "ablation"),
        *((part, get_args(Part), "part") for part in parts),
    ):
        if value not in options:
            raise UnknownName(what, str(value), options)
    if not parts or len(set(parts)) < len(parts):
        raise LevelheadError("name each part once", mend=f"choose from {', '.join(get_args(Part))}")
    if by == "ablation" and "embeddings" in parts:
        raise LevelheadError(
            "without embeddings all words are one vector: there is nothing to compare",
            mend="take the embeddings' gradient",
        )
    if not (exact is None or exact in ("all", "none") or (type(exact) is int and exact > 0)):
        raise LevelheadError(
            f"{exact!r} parts cannot be ablated", mend="give 'all', 'none' or how many"
        )
    if by == "ablation" and exact not in (None, "all"):
        raise LevelheadError(
            f"by ablation every part is ablated, not {exact!r}", mend="leave out exact"
        )


def _tested(scores: Mapping[Site, float], exact: Exact | None) -> list[Site]:
    """Which parts are ablated, in the map's order."""
    if exact == "none":
        return []
    ranked = sorted(scores, key=lambda site: -scores[site])
    if exact == "all" or (exact is None and len(ranked) <= ALL_UP_TO):
        return list(scores)
    best = ranked[:exact] if isinstance(exact, int) else [*ranked[:BEST], *ranked[-WORST:]]
    some = set(best)
    return [site for site in scores if site in some]


def _score(place: tuple[Part, int, int], score: float, estimate: Estimate | None) -> PartScore:
    part, layer, head = place
    plain = PartScore(part=part, layer=layer, head=head if part == "heads" else None, score=score)
    if estimate is None:
        return plain
    told = ("interval", "p", "detectable")
    judged = {name: getattr(estimate, name) for name in told}
    return plain.model_copy(update={"effect": estimate.value, **judged})


def _notes(
    estimates: Mapping[Site, Estimate | None],
    parts: int,
    find: Readouts,
    cut: Split,
    readouts: Readouts,
) -> tuple[str, ...]:
    notes = []
    without = [str(site) for site, one in estimates.items() if one is None]
    if without:
        notes.append(f"ablation changes nothing at {', '.join(without)}: no p-value")
    if len(estimates) < parts:
        notes.append(
            f"{len(estimates)} of {parts} parts were ablated, the others are only ranked"
            + ("; rank agreement is of these, which lie far apart" if estimates else "")
        )
    if cut.by == "contexts":
        for name, half in (("find", find), ("confirm", cut.confirm.of(readouts))):
            if len(half) < len(readouts):
                lost = len(readouts) - len(half)
                notes.append(f"{lost} items have no context in the {name} half")
    if readouts.owner:
        notes.append("effects' intervals redraw words; their contexts are as they are")
    return tuple(notes)
