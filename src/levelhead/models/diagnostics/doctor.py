"""Does what we rely on hold for this model, on these versions? Every line is tried, not assumed.

A seam that a new release moves breaks silently: a mask that is ignored reads as a head without
effect. So each property is checked on the user's own model: what is seen, or what is broken and
the mend.
"""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast

import torch

from levelhead.core.errors import LevelheadError
from levelhead.core.versions import installed_versions
from levelhead.models.architectures.model_layout import is_linear, is_transposed
from levelhead.models.edits.base import HeadScale, Projection
from levelhead.models.inputs.batching import padded
from levelhead.models.inputs.token_tree import longest, tree
from levelhead.models.inputs.tokenizer import Row
from levelhead.models.queries import build as asks
from levelhead.models.queries.query import AttentionRows, Classes, Reading, States
from levelhead.models.queries.vocabulary import scores
from levelhead.models.sites import BY_HEAD, STREAMS, WITHOUT_LAYER, Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from transformers import PreTrainedModel

    from levelhead.models.edits.base import Edit
    from levelhead.models.inputs.tokenizer import Encoded
    from levelhead.models.lm import LM
    from levelhead.models.queries.query import Part

TEXTS = (
    "The river was high and the bridge was closed.",
    "She opened the window.",
    "On Monday the council of the old town met again to talk about the new road.",
    "He waited.",
)
TOLERANCE = {
    torch.float64: 1e-8,
    torch.float32: 1e-4,
    torch.bfloat16: 8e-2,
    torch.float16: 2e-2,
}
"""Of the largest number compared: what rounding alone may do."""


class Broken(LevelheadError):
    """A property that does not hold."""


class Finding(NamedTuple):
    """One line of the doctor's report."""

    check: str
    holds: bool | None
    """None: this model gives nothing to check."""
    told: str
    mend: str = ""


@dataclass(frozen=True, eq=False)
class Patient:
    """A model and what the checks ask of it."""

    lm: LM
    fingerprint: str = field(init=False)
    hooks: frozenset[tuple[str, int]] = field(init=False)
    """Those of a known head, say, which belong to the model."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "fingerprint", fingerprint(self.lm))
        object.__setattr__(self, "hooks", hooks(self.lm))

    @cached_property
    def encoded(self) -> list[Encoded]:
        """The texts as tokens. Words the model does not know will do: it is not their meaning."""
        return self.lm.tokens.encode(TEXTS)

    @property
    def rows(self) -> tuple[Row, ...]:
        """Of all texts."""
        return tuple(one.row for one in self.encoded)

    @property
    def tokens(self) -> tuple[tuple[int, ...], ...]:
        """One token in the middle of each text."""
        return tuple((one.words()[len(one.words()) // 2],) for one in self.encoded)

    @cached_property
    def reading(self) -> Reading:
        """The vector of that token in each text."""
        return Reading(self.rows, States(self.tokens))

    @property
    def tolerance(self) -> float:
        """What rounding may do in this precision."""
        return TOLERANCE[self.lm.anatomy.model.dtype]

    def values(self, lm: LM) -> torch.Tensor:
        """Of all texts, by a model."""
        return lm.run(self.reading)

    def one(self, lm: LM) -> torch.Tensor:
        """Of the first text alone, by a model."""
        with torch.no_grad():
            return lm.answer(self.reading, [0]).values

    def layers(self, layer: int) -> tuple[int, ...]:
        """A layer and all others that run the same weights."""
        blocks = self.lm.anatomy.blocks
        return tuple(i for i, block in enumerate(blocks) if block is blocks[layer])

    def projection(self, site: Site, k: int = 1) -> Projection:
        """Takes out some fixed arbitrary directions."""
        size = self.lm.anatomy.size(site)
        rng = torch.Generator().manual_seed(size + k)
        drawn = torch.randn(size, min(k, size), generator=rng, dtype=torch.float64)
        return Projection(site, torch.linalg.qr(drawn).Q.T)


def examine(lm: LM) -> Iterator[Finding]:
    """Run every check on a model, one after the other."""
    patient = Patient(lm)
    for name, check in CHECKS.items():
        try:
            yield Finding(name, True, check(patient))
        except NothingToCheck as nothing:
            yield Finding(name, None, str(nothing))
        except LevelheadError as error:
            yield Finding(name, False, error.what, error.mend)
        except Exception as error:  # whatever a new release raises is a line that fails
            told = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            yield Finding(name, False, told, _report())


class NothingToCheck(Exception):
    """The model does not have what a check is about."""


def own_scores(patient: Patient) -> str:
    """What we read from a head is what the model itself says."""
    lm, anatomy = patient.lm, patient.lm.anatomy
    if not lm.heads:
        raise NothingToCheck("it has no head")
    rows = patient.rows
    worst = 0.0
    with torch.no_grad():
        batch = padded(rows, [0], pad=lm.tokens.pad, device=lm.device)
        output = anatomy.model(**batch.inputs)
        if anatomy.cls.vocabulary:
            hidden = anatomy.backbone(**batch.inputs).last_hidden_state
            own = output.get("prediction_logits", output.get("logits"))
            worst = _distance(scores(anatomy, hidden[0]), own[0])
        if anatomy.cls.next_sentence or anatomy.cls.classifier:
            head: Part = "next_sentence" if anatomy.cls.next_sentence else "classifier"
            own = output.get("seq_relationship_logits", output.get("logits"))
            ours = lm.answer(Reading(rows, Classes(head)), [0]).values
            worst = max(worst, _distance(ours, own.log_softmax(-1, dtype=ours.dtype)))
    return _within(patient, worst, "the model's own scores and ours differ by {:.1e}")


def masking(patient: Patient) -> str:
    """Every head that hands anything on changes the output when it is masked."""
    lm, anatomy = patient.lm, patient.lm.anatomy
    heads = [(layer, head) for layer in range(anatomy.layers) for head in range(anatomy.heads)]
    alive = [place for place in heads if not _is_empty(lm, *place)]
    ignored = []
    size = lm.batching.size
    with torch.no_grad():
        for begin in range(0, len(alive), size):
            places = alive[begin : begin + size]
            gates = torch.ones(len(places) + 1, anatomy.layers, anatomy.heads)
            for row, (layer, head) in enumerate(places):
                gates[row, layer, head] = 0
            reading = Reading(
                patient.rows[:1] * len(gates), States(patient.tokens[:1] * len(gates))
            )
            values = lm.answer(reading, range(len(gates)), gates={"head_out": gates}).values
            for place, value in zip(places, values[:-1], strict=True):
                if torch.equal(value, values[-1]):
                    ignored.append(place)
    if ignored or not alive:
        raise Broken(
            f"masking {len(ignored) or 'any'} of {len(heads)} heads changes nothing: "
            f"{', '.join(f'{layer}.{head}' for layer, head in ignored[:5])}",
            mend=_report(),
        )
    empty = len(heads) - len(alive)
    return f"{len(alive)} of {len(heads)} heads change the output" + (
        f"; {empty} hand nothing on (their output weights are 0)" if empty else ""
    )


def gradient(patient: Patient) -> str:
    """The gradient of the head masks is what small changes of them do."""
    lm, anatomy = patient.lm, patient.lm.anatomy
    if anatomy.model.dtype in (torch.float16, torch.bfloat16):
        raise NothingToCheck(f"{anatomy.model.dtype} is too coarse to tell; try float32")
    shape = (anatomy.layers, anatomy.heads)
    weights = torch.linspace(-1, 1, patient.one(lm).shape[1], dtype=torch.float64)

    def value(gates: torch.Tensor) -> torch.Tensor:
        told = lm.answer(patient.reading, [0], gates={"head_out": gates}).values
        return (told.double().cpu() @ weights).sum()

    ones = torch.ones(shape, dtype=torch.float64, requires_grad=True)
    (exact,) = torch.autograd.grad(value(ones), ones)
    step, worst = 2e-2, 0.0
    scale = float(exact.norm())
    if not scale > 0:
        raise Broken("the gradient of every head mask is 0", mend=_report())
    signs = torch.Generator().manual_seed(1)
    for layer in range(anatomy.layers):
        way = torch.zeros(shape, dtype=torch.float64)
        way[layer] = torch.randint(0, 2, way[layer].shape, generator=signs).double() * 2 - 1
        with torch.no_grad():
            rough = (value(ones + step * way) - value(ones - step * way)) / (2 * step)
        worst = max(worst, abs(float(rough - (exact * way).sum())) / scale)
    if not worst <= 2e-2:
        raise Broken(
            f"the gradient of the head masks is off by {worst:.1%} of its size", mend=_report()
        )
    return f"the gradient is within {worst:.2%} of finite differences"


def attention(patient: Patient) -> str:
    """A row of attention read beside sdpa is a row of the model's eager attention."""
    lm, anatomy = patient.lm, patient.lm.anatomy
    with torch.no_grad():
        (row,) = lm.answer(Reading(patient.rows, AttentionRows(patient.tokens)), [0]).values
    eager = _copy(lm)
    eager.set_attn_implementation("eager")
    with torch.no_grad():
        batch = padded(patient.rows, [0], pad=lm.tokens.pad, device=lm.device)
        full = eager.base_model(**batch.inputs, output_attentions=True).attentions
    if not full or len(full) != anatomy.layers:
        raise Broken("eager attention is not to be had for comparison", mend=_report())
    tokens = list(patient.tokens[0])
    expected = torch.stack([layer[0].cpu() for layer in full])[:, :, tokens].mean(2)
    worst = _distance(row, expected)
    return _within(patient, worst, "attention rows and eager attention differ by {:.1e}")


def baking(patient: Patient) -> str:
    """Edits folded into the weights do what they do in hooks."""
    lm, anatomy = patient.lm, patient.lm.anatomy
    edits: list[Edit] = []
    for layer in patient.layers(anatomy.layers // 2):
        edits.append(HeadScale([Site("head_out", layer, anatomy.heads - 1)], 0.5))
        edits.extend(
            patient.projection(Site(stream, layer, 0), 2)
            for stream in BY_HEAD
            if stream not in anatomy.family.positions_too
        )
        if is_linear(anatomy.place("mlp_out", layer).module):
            edits.append(patient.projection(Site("mlp_out", layer), 2))
    edited = lm.edited(*edits)
    hooked = patient.values(edited)
    if torch.equal(hooked, patient.values(lm)):
        raise Broken("the edits change nothing", mend=_report())
    worst = _distance(patient.values(edited.baked()), hooked)
    return _within(patient, worst, "edits in hooks and in weights differ by {:.1e}")


def resuming(patient: Patient) -> str:
    """A forward that goes on from a stored layer input is the whole forward."""
    lm, anatomy = patient.lm, patient.lm.anatomy
    if anatomy.layers < 2:
        raise NothingToCheck("one layer only")
    layer = anatomy.layers // 2
    indices = range(len(TEXTS)) if not lm.batching.level else [0]
    edited = lm.edited(HeadScale([Site("head_out", layer, 0)], 0))
    with torch.no_grad():
        start = lm.answer(patient.reading, indices, keep=[layer]).prefixes[layer]
        resumed = edited.answer(patient.reading, indices, start=start).values
        whole = edited.answer(patient.reading, indices).values
        plain = lm.answer(patient.reading, indices).values
    worst = _distance(resumed, whole)
    if torch.equal(resumed, plain) and not torch.equal(whole, plain):
        raise Broken("a resumed forward does not run the layers above", mend=_report())
    return _within(patient, worst, "a resumed and a whole forward differ by {:.1e}")


def batches(patient: Patient) -> str:
    """A text says the same alone, beside longer ones, and where others share its tokens."""
    lm = patient.lm
    alone, together = lm.batched(1), lm.batched(len(TEXTS))
    worst = _distance(patient.values(alone), patient.values(together))
    if lm.anatomy.cls.classifier:
        ask = Reading(patient.rows, Classes("classifier"))
        worst = max(worst, _distance(alone.run(ask), together.run(ask)))
    worst = max(worst, _branched(patient))
    return _within(patient, worst, "batches of 1 and of 4 differ by {:.1e}")


def _branched(patient: Patient) -> float:
    """How far what goes on from one text in one row is from a row for each."""
    (stem, *others), run = (row.ids for row in patient.rows), patient.lm.run
    words = [own[-4:] for own in others]
    shared, places = tree(stem, words)
    if len(shared.ids) > longest(patient.lm):
        return 0.0  # nothing branches in this model
    apart = tuple(Row((*stem, *word[:-1]), None) for word in words)
    ends = tuple((len(row.ids) - 1,) for row in apart)
    branched = States(tuple((own[-1],) for own in places))
    return _distance(
        run(Reading((shared,) * len(words), branched)), run(Reading(apart, States(ends)))
    )


def sites(patient: Patient) -> str:
    """An edit at every stream of every layer changes the output."""
    lm, anatomy = patient.lm, patient.lm.anatomy
    plain = patient.one(lm)
    dead, count = [], 0
    for stream in STREAMS:
        for layer in (0,) if stream in WITHOUT_LAYER else range(anatomy.layers):
            if stream == "pooled" and not _has_pooled(lm):
                continue
            count += 1
            if not _acts(patient, Site(stream, layer), plain):
                dead.append(str(Site(stream, layer)))
    if dead:
        raise Broken(f"an edit changes nothing at {', '.join(dead[:5])}", mend=_report())
    return f"an edit acts at each of {count} places"


def untouched(patient: Patient) -> str:
    """After all this the model has no hooks of ours and every weight its bits."""
    lm = patient.lm
    patient.values(lm.edited(patient.projection(Site("block_out", 0))))
    left = sorted(name for name, _ in hooks(lm) - patient.hooks)
    if left:
        raise Broken(f"hooks were left at {', '.join(left[:3])}", mend=_report())
    if fingerprint(lm) != patient.fingerprint:
        raise Broken("the weights are not what they were", mend=_report())
    return "no hook is left and the weights are bit-identical"


CHECKS: dict[str, Callable[[Patient], str]] = {
    "own scores": own_scores,
    "masking": masking,
    "gradient": gradient,
    "attention": attention,
    "baking": baking,
    "resuming": resuming,
    "batches": batches,
    "sites": sites,
    "untouched": untouched,
}


def hooks(lm: LM) -> frozenset[tuple[str, int]]:
    """Where the model has hooks, and which."""
    return frozenset(
        (name, key)
        for name, module in lm.anatomy.model.named_modules()
        for key in (*module._forward_hooks, *module._forward_pre_hooks)
    )


def fingerprint(lm: LM) -> str:
    """SHA-256 of all weights in memory. Offloaded ones have no bytes and count by name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(lm.anatomy.model.state_dict().items()):
        digest.update(name.encode())
        if not tensor.is_meta:
            flat = tensor.detach().cpu().contiguous().flatten()
            digest.update(memoryview(flat.view(torch.uint8).numpy()))
    return digest.hexdigest()


def _copy(lm: LM) -> PreTrainedModel:
    """A second copy of the model, so that nothing done to it stays on the first."""
    if any(parameter.is_meta for parameter in lm.anatomy.model.parameters()):
        raise NothingToCheck("some weights are offloaded by device_map")
    return copy.deepcopy(lm.anatomy.model)


def _is_empty(lm: LM, layer: int, head: int) -> bool:
    """A head whose output weights are 0: an earlier mask that was baked."""
    module, _, _ = lm.anatomy.place("head_out", layer)
    size = lm.anatomy.head_dim
    weight = cast("torch.Tensor", module.weight)
    by_input = weight if is_transposed(module) else weight.T
    part = by_input[head * size : (head + 1) * size]
    return not part.is_meta and not bool(part.any())


def _has_pooled(lm: LM) -> bool:
    try:
        lm.anatomy.place("pooled", 0)
    except LevelheadError:
        return False
    return True


def _acts(patient: Patient, site: Site, plain: torch.Tensor) -> bool:
    edited = patient.lm.edited(patient.projection(site, 4))
    if site.stream == "pooled":
        ask = asks.states(patient.lm, TEXTS[:1], [site], None, None)
        return not torch.equal(edited.run(ask), patient.lm.run(ask))
    return not torch.equal(patient.one(edited), plain)


def _distance(first: torch.Tensor, second: torch.Tensor) -> float:
    """Largest difference as a share of the largest number; NaN counts as infinitely far."""
    first, second = first.double().cpu(), second.double().cpu()
    if first.shape != second.shape or not (first.isfinite().all() and second.isfinite().all()):
        return float("inf")
    return float((first - second).abs().max() / second.abs().max().clamp(min=1e-30))


def _within(patient: Patient, worst: float, told: str) -> str:
    if not worst <= patient.tolerance:
        raise Broken(told.format(worst), mend=_report())
    return told.format(worst)


def _report() -> str:
    versions = installed_versions()
    return (
        "do not trust scores of this model here; use the versions levelhead is tested with, or "
        f"report it with: transformers {versions['transformers']}, torch {versions['torch']}"
    )
