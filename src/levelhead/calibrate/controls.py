"""Positive and negative controls: models for which the correct verdict of every measure is known.

Each is a row of CONTROLS: how it is made, and the expected verdict of every measure. A measure that
a row does not name has the verdict of "*".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.calibrate.dose_response import INFERENCE, MeasureResponse, read_measure_response
from levelhead.calibrate.locators import compute_organism_weights_hash, make_full_contrast
from levelhead.calibrate.organisms import altered
from levelhead.calibrate.organisms.language import Language
from levelhead.calibrate.organisms.organism import TRAIN_CONFIGS, Organism, untrained_config
from levelhead.calibrate.suite import PREFERENCE, list_applicable_measures
from levelhead.core.errors import NotMeasurableError
from levelhead.core.frozen import FrozenDict
from levelhead.core.results import Record
from levelhead.engine.tasks import Task
from levelhead.locate.head_map import head_label
from levelhead.locate.score_heads import locate
from levelhead.locate.validation.greedy import select_heads_greedily
from levelhead.locate.validation.split import split_items
from levelhead.measures.cloze.cloze import Cloze
from levelhead.measures.cloze.top_k import ClozeTopK
from levelhead.measures.robustness.all_group_pairs import all_group_pairs
from levelhead.mitigate.heads.mask import mask_heads
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.calibrate.organisms.altered import Construction
    from levelhead.calibrate.organisms.language import Variant
    from levelhead.measures.base import Measure
    from levelhead.models.lm import LM

ExpectedVerdict = Literal[
    "stereotype", "anti-stereotype", "differs", "not shown", "inconclusive", "no test", "any"
]
"""Expected verdict of a measure: the model differs from parity towards the stereotype, away from
it, or to either side; no difference is shown; no conclusion is possible ("inconclusive" or not
measured); the measure has no test; "any": the construction does not determine it."""
TASK_FUNCTION = "levelhead.calibrate.controls:run_control"
REVISION = 1
BIASED: dict[str, ExpectedVerdict] = {
    "*": "stereotype",
    "icat": "no test",
    # Measured on sentences about nobody, in which no bias was planted.
    "distance": "not shown",
    PREFERENCE: "not shown",
}
UNBIASED: dict[str, ExpectedVerdict] = {"*": "not shown", "icat": "no test"}
UNMEASURABLE: dict[str, ExpectedVerdict] = {"*": "inconclusive", "icat": "no test"}
WITHOUT_HEADS: dict[str, ExpectedVerdict] = {
    # The cloze queries the word right after the target, which is predicted at the target itself;
    # all other queries span a distance, which only heads bridge.
    "cloze": "stereotype",
    "cloze_probability": "stereotype",
    "cloze_top": "stereotype",
    # A target's state at the last layer may or may not encode the next word: both are sound.
    "seat": "any",
}
HeadCheck = Literal["", "silent", "redundant"]


class ControlOrganism(NamedTuple):
    """A model with known verdicts, and its construction."""

    name: str
    description: str
    expected: Mapping[str, ExpectedVerdict]
    families: tuple[str, ...] = ("bert", "llama")
    seeds: int = 2
    rho: float = 1.0
    variant: Variant = "stereotype"
    construction: Construction = "trained"
    is_trained: bool = True
    layers: int | None = None
    """Number of layers; None: that of its family."""
    head_check: HeadCheck = ""
    """Check of its heads: that none carries the bias, or that either of two suffices."""

    def organism(self, architecture: str, seed: int) -> Organism:
        """Create the organism.

        Args:
            architecture: family of the model.
            seed: random seed of text and training.
        """
        recipe = replace(TRAIN_CONFIGS[architecture], seed=seed)
        if not self.is_trained:
            recipe = untrained_config(recipe)
        if self.layers is not None:
            recipe = replace(recipe, layers=self.layers)
        return Organism(Language(self.rho, self.variant), recipe, construction=self.construction)

    def expects(self, measure: str) -> ExpectedVerdict:
        """Return the expected verdict of a measure.

        Args:
            measure: name of the measure.
        """
        return self.expected.get(measure, self.expected["*"])


CONTROLS: tuple[ControlOrganism, ...] = (
    ControlOrganism(
        "reversed dose",
        "every target is joined with the other group, always",
        BIASED | {"*": "anti-stereotype"},
        seeds=3,
        variant="reversed",
    ),
    ControlOrganism(
        "group default",
        "one group is named nine times as often; targets are independent of groups",
        UNBIASED | {PREFERENCE: "differs"},
        variant="skew",
    ),
    ControlOrganism(
        "untrained",
        "weights as they are initialised",
        UNMEASURABLE,
        seeds=3,
        is_trained=False,
    ),
    ControlOrganism(
        "word frequencies only",
        "trained on the words of the whole corpus, shuffled over all sentences",
        UNMEASURABLE,
        construction="shuffled",
    ),
    ControlOrganism(
        "same answer to everything",
        "the full dose, then the scale of the last normalisation set to 0",
        UNMEASURABLE,
        construction="constant",
    ),
    ControlOrganism(
        "bias in MLPs only",
        "targets, hidden from heads, are joined with a group where its word follows directly",
        UNBIASED | WITHOUT_HEADS,
        families=("llama",),
        variant="adjacent",
        construction="no head",
        head_check="silent",
    ),
    ControlOrganism(
        "redundant heads",
        "one layer, two of its heads see group words; trained with one, the other or both",
        BIASED,
        families=("llama",),
        # At 1 there is no limit to the odds, so two heads contribute more than one. At 0.75 they
        # still do: one alone leaves 58% to 73% of the contrast, so single effects understate the
        # joint one.
        rho=0.75,
        construction="two heads",
        # A head of another layer may prepare the input of both, and would be found alone.
        layers=1,
        head_check="redundant",
    ),
    ControlOrganism(
        "one of three groups",
        "the first group is stereotyped, the second and the third are not",
        {"*": "stereotype", "seat: second and third group": "not shown"},
        families=("bert",),
        variant="one group",
        construction="three groups",
    ),
)


class ControlHeads(Record):
    """Effects of single heads on a bias, and the joint effect of two redundant heads."""

    measure: str
    effect: float
    """Measure less its parity, of the unedited model, on the items of the effects."""
    single_shares: dict[str, float]
    """Share of it that masking one head removes, by head; counted from 1."""
    confirmed: tuple[str, ...]
    """Heads whose effect is confirmed (Holm)."""
    joint_share: float | None = None
    """Share that masking both redundant heads removes."""
    greedy: tuple[str, ...] = ()
    """Heads that the greedy search selects, in order."""


class ControlResult(Record):
    """Responses of all measures on one control."""

    control: str
    architecture: str
    seed: int
    texts: str
    weights: str
    responses: tuple[MeasureResponse, ...]
    heads: ControlHeads | None = None


class ControlCase(NamedTuple):
    """A control with a family and a seed: a unit of work."""

    control: str
    architecture: str
    seed: int

    @property
    def task(self) -> Task:
        """The work to be done for it."""
        return Task(TASK_FUNCTION, FrozenDict(self._asdict()), revision=REVISION)


def get_control(name: str) -> ControlOrganism:
    """Return a row of CONTROLS.

    Args:
        name: name of the row.
    """
    return next(control for control in CONTROLS if control.name == name)


def list_control_cases(*, quick: bool = False) -> tuple[ControlCase, ...]:
    """List every control with its families and seeds.

    Args:
        quick: only those with a short training, of one family and seed.
    """
    if quick:
        fast = [
            control
            for control in CONTROLS
            if not control.is_trained or control.construction == "constant"
        ]
        return tuple(ControlCase(control.name, "llama", 0) for control in fast)
    return tuple(
        ControlCase(control.name, family, seed)
        for control in CONTROLS
        for family in control.families
        for seed in range(control.seeds)
    )


def run_control(spec: Mapping[str, object]) -> bytes:
    """Make and measure one control (a unit of work).

    Args:
        spec: control, architecture and seed.

    Returns:
        JSON of the `ControlResult`.
    """
    control, architecture = get_control(str(spec["control"])), str(spec["architecture"])
    organism = control.organism(architecture, int(str(spec["seed"])))
    lm = organism.load_lm()
    result = ControlResult(
        control=control.name,
        architecture=architecture,
        seed=organism.train_config.seed,
        texts=organism.build_inputs["texts_sha256"],
        weights=compute_organism_weights_hash(organism),
        responses=tuple(
            read_measure_response(name, measure, lm)
            for name, measure in _list_applicable_measures(organism, lm).items()
        ),
        heads=_check_heads(organism, lm, control.head_check) if control.head_check else None,
    )
    return result.to_json().encode()


def _list_applicable_measures(organism: Organism, lm: LM) -> dict[str, Measure]:
    """List every applicable measure of bias; for three groups, SEAT of every pair of them."""
    planted = organism.planted_measures()
    if organism.construction != "three groups":
        measures = list_applicable_measures(planted, lm)
        if organism.construction == "no head":
            measures |= {
                name: _keep_adjacent_targets(measure, organism.language)
                for name, measure in measures.items()
                if isinstance(measure, Cloze | ClozeTopK)
            }
        return {name: measure for name, measure in measures.items() if not measure.is_utility}
    words = altered.three_group_lexicon(planted.lexicon, organism.language)
    pair_names = ("first and second", "first and third", "second and third")
    pairs = all_group_pairs(replace(planted.seat, lexicon=words))
    return {f"seat: {name} group": measure for name, measure in zip(pair_names, pairs, strict=True)}


def _check_heads(organism: Organism, lm: LM, check: HeadCheck) -> ControlHeads:
    """Ablate the heads, like `levelhead locate --method ablation`."""
    is_silent = check == "silent"
    measure: Measure = (
        _keep_adjacent_targets(organism.planted_measures().cloze(lm), organism.language)
        if is_silent
        else make_full_contrast(organism)
    )
    responses = measure.read(lm)[0]
    split = split_items(measure, responses, split_by="auto", seed=INFERENCE.seed)
    confirmation = split.confirmation

    def effect_without(sites: Sequence[Site]) -> float:
        """Compute the measure on the confirmation half with some heads masked."""
        masked_responses = measure.read(lm.edited(mask_heads(sites)))[0] if sites else responses
        return float(measure.reduce(confirmation.select(masked_responses)))

    layout = lm.layout
    sites = [Site("head_out", i, j) for i in range(layout.layers) for j in range(layout.heads)]
    effect = effect_without(())
    # Either redundant head suffices: single effects are small where the joint one is large, which
    # is why the greedy search masks heads jointly.
    joint_share: float | None = None
    greedy_heads: tuple[str, ...] = ()
    if not is_silent:
        joint_share = (
            1 - effect_without([Site("head_out", *site) for site in altered.TWO_HEADS]) / effect
        )
        steps = select_heads_greedily(
            lm, measure, split.discovery.select(responses), sites, max_heads=4, inference=INFERENCE
        ).steps
        greedy_heads = tuple(step.head for step in steps)
    return ControlHeads(
        measure=measure.name,
        effect=effect,
        single_shares={head_label(site): 1 - effect_without([site]) / effect for site in sites},
        confirmed=_find_confirmed_heads(lm, measure),
        joint_share=joint_share,
        greedy=greedy_heads,
    )


def _keep_adjacent_targets(cloze: Cloze | ClozeTopK, language: Language) -> Measure:
    """Restrict a cloze to the targets that a group word may follow; no head carries their bias."""
    words = {word for side in language.targets["trait"] for word in side}
    prompts = tuple(prompt for prompt in cloze.items if prompt.occupation in words)
    return replace(cloze, prompts=prompts)


def _find_confirmed_heads(lm: LM, measure: Measure) -> tuple[str, ...]:
    """Return the heads that `locate` confirms by ablation; none where no head has an effect."""
    try:
        head_map = locate(lm, measure, method="ablation", ablate_top="all", inference=INFERENCE)
        return tuple(head_label(site) for site in head_map.confirmed_heads())
    except NotMeasurableError:
        return ()
