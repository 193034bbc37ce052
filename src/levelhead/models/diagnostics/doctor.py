"""Doctor: check on a given model and installed versions what levelhead relies on.

If a new release of a library moves an interface, the failure is silent: an ignored mask looks like
a head without effect. Therefore each property is tested on the user's model; the report says what
was observed, or what failed, with a hint.
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
from levelhead.models.inputs.batching import make_batch
from levelhead.models.inputs.token_tree import build_token_tree, max_tree_length
from levelhead.models.inputs.tokenizer import TokenRow
from levelhead.models.queries import build
from levelhead.models.queries.query import AttentionRows, ClassLogProbs, HiddenStates, Query
from levelhead.models.queries.vocabulary import compute_vocabulary_logits
from levelhead.models.sites import LAYERLESS_STREAMS, PER_HEAD_STREAMS, STREAMS, Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from transformers import PreTrainedModel

    from levelhead.models.edits.base import Edit
    from levelhead.models.inputs.tokenizer import EncodedText
    from levelhead.models.lm import LM
    from levelhead.models.queries.query import OutputStage

# Four different lengths, so that a batch of all of them is padded.
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
"""Allowed rounding error, as a share of the largest number that is compared."""


class CheckFailedError(LevelheadError):
    """A property that does not hold."""


class CheckResult(NamedTuple):
    """One line of the doctor's report."""

    check: str
    holds: bool | None
    """None: the check does not apply to this model."""
    message: str
    hint: str = ""


@dataclass(frozen=True, eq=False)
class ModelUnderTest:
    """A model, and the inputs of the checks."""

    lm: LM
    fingerprint: str = field(init=False)
    hooks_at_start: frozenset[tuple[str, int]] = field(init=False)
    """Hooks that belong to the model, such as those of `OneVisibleHead`."""

    def __post_init__(self) -> None:
        # Before any check runs: `check_untouched` compares with this state.
        object.__setattr__(self, "fingerprint", compute_fingerprint(self.lm))
        object.__setattr__(self, "hooks_at_start", find_hooks(self.lm))

    @cached_property
    def encoded(self) -> list[EncodedText]:
        """The texts as tokens; unknown words are harmless, because no meaning is measured."""
        return self.lm.tokens.encode(TEXTS)

    @property
    def rows(self) -> tuple[TokenRow, ...]:
        """Rows of all texts."""
        return tuple(encoded.row for encoded in self.encoded)

    @property
    def tokens(self) -> tuple[tuple[int, ...], ...]:
        """Position of one token in the middle of each text."""
        return tuple(
            (encoded.word_positions()[len(encoded.word_positions()) // 2],)
            for encoded in self.encoded
        )

    @cached_property
    def query(self) -> Query:
        """Query of that token's last hidden state in each text."""
        return Query(self.rows, HiddenStates(self.tokens))

    @property
    def tolerance(self) -> float:
        """Allowed rounding error in the model's precision."""
        return TOLERANCE[self.lm.layout.model.dtype]

    def run_all(self, lm: LM) -> torch.Tensor:
        """Run the query on all texts with a model."""
        return lm.run(self.query)

    def run_first(self, lm: LM) -> torch.Tensor:
        """Run the query on only the first text with a model."""
        # Always a batch of one row: results are compared bit for bit, and other sizes round
        # differently.
        with torch.no_grad():
            return lm.run_rows(self.query, [0]).values

    def layers_sharing_weights(self, layer: int) -> tuple[int, ...]:
        """Return a layer and all others that use the same weights."""
        blocks = self.lm.layout.blocks
        return tuple(i for i, block in enumerate(blocks) if block is blocks[layer])

    def projection(self, site: Site, k: int = 1) -> Projection:
        """Return a projection that removes fixed arbitrary directions.

        Args:
            site: Site of the projection.
            k: Number of directions.
        """
        size = self.lm.layout.site_width(site)
        rng = torch.Generator().manual_seed(size + k)
        # As many directions as the site allows: at most its width.
        directions = torch.randn(size, min(k, size), generator=rng, dtype=torch.float64)
        return Projection(site, torch.linalg.qr(directions).Q.T)


def run_checks(lm: LM) -> Iterator[CheckResult]:
    """Run every check on a model, one after the other."""
    model = ModelUnderTest(lm)
    for name, check in CHECKS.items():
        try:
            yield CheckResult(name, True, check(model))
        except NothingToCheckError as nothing:
            yield CheckResult(name, None, str(nothing))
        except LevelheadError as error:
            yield CheckResult(name, False, error.problem, error.hint)
        # Whatever a new release raises must become a failed line, not end the report.
        except Exception as error:
            message = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            yield CheckResult(name, False, message, _make_report_hint())


class NothingToCheckError(Exception):
    """A check does not apply to the model."""


def check_scores(model: ModelUnderTest) -> str:
    """Check that the scores that levelhead reads are those of the model's forward method."""
    lm, layout = model.lm, model.lm.layout
    if not lm.heads:
        raise NothingToCheckError("the model has no head")
    rows = model.rows
    worst = 0.0
    with torch.no_grad():
        batch = make_batch(rows, [0], pad=lm.tokens.pad, device=lm.device)
        output = layout.model(**batch.inputs)
        if layout.model_class.vocabulary:
            hidden = layout.backbone(**batch.inputs).last_hidden_state
            model_scores = output.get("prediction_logits", output.get("logits"))
            worst = _distance(compute_vocabulary_logits(layout, hidden[0]), model_scores[0])
        if layout.model_class.next_sentence or layout.model_class.classifier:
            head: OutputStage = (
                "next_sentence" if layout.model_class.next_sentence else "classifier"
            )
            model_scores = output.get("seq_relationship_logits", output.get("logits"))
            our_scores = lm.run_rows(Query(rows, ClassLogProbs(head)), [0]).values
            worst = max(
                worst, _distance(our_scores, model_scores.log_softmax(-1, dtype=our_scores.dtype))
            )
    return _require_within_tolerance(
        model, worst, "the model's scores and levelhead's differ by {:.1e}"
    )


def check_masking(model: ModelUnderTest) -> str:
    """Check that masking any head whose output weights are not 0 changes the output."""
    lm, layout = model.lm, model.lm.layout
    heads = [(layer, head) for layer in range(layout.layers) for head in range(layout.heads)]
    # Merged masks leave heads with output weights of 0: masking them again changes nothing.
    alive = [position for position in heads if not _is_empty(lm, *position)]
    ignored = []
    size = lm.batching.size
    with torch.no_grad():
        for begin in range(0, len(alive), size):
            positions = alive[begin : begin + size]
            # One row per mask in a single batch, and an unmasked row to compare with: batches of
            # different sizes may differ by rounding.
            gates = torch.ones(len(positions) + 1, layout.layers, layout.heads)
            for row, (layer, head) in enumerate(positions):
                gates[row, layer, head] = 0
            query = Query(model.rows[:1] * len(gates), HiddenStates(model.tokens[:1] * len(gates)))
            values = lm.run_rows(query, range(len(gates)), gates={"head_out": gates}).values
            for position, value in zip(positions, values[:-1], strict=True):
                if torch.equal(value, values[-1]):
                    ignored.append(position)
    # A model in which no head can be tested must not pass.
    if ignored or not alive:
        raise CheckFailedError(
            f"masking {len(ignored) or 'any'} of {len(heads)} heads changes nothing: "
            f"{', '.join(f'{layer + 1}-{head + 1}' for layer, head in ignored[:5])} "
            "(layer-head, counted from 1)",
            hint=_make_report_hint(),
        )
    empty = len(heads) - len(alive)
    return f"{len(alive)} of {len(heads)} heads change the output" + (
        f"; {empty} have no effect because their output weights are 0" if empty else ""
    )


def check_gradient(model: ModelUnderTest) -> str:
    """Check the gradient of the head masks against finite differences."""
    lm, layout = model.lm, model.lm.layout
    if layout.model.dtype in (torch.float16, torch.bfloat16):
        raise NothingToCheckError(f"{layout.model.dtype} is too imprecise; use float32")
    shape = (layout.layers, layout.heads)
    # Different weights, so that contributions of hidden dimensions do not cancel by symmetry.
    weights = torch.linspace(-1, 1, model.run_first(lm).shape[1], dtype=torch.float64)

    def value(gates: torch.Tensor) -> torch.Tensor:
        hidden_states = lm.run_rows(model.query, [0], gates={"head_out": gates}).values
        return (hidden_states.double().cpu() @ weights).sum()

    ones = torch.ones(shape, dtype=torch.float64, requires_grad=True)
    (exact,) = torch.autograd.grad(value(ones), ones)
    # Central differences: the error of the formula grows with the step, rounding in float32 falls.
    step, worst = 2e-2, 0.0
    scale = float(exact.norm())
    # Written so that NaN fails.
    if not scale > 0:
        raise CheckFailedError("the gradient of every head mask is 0", hint=_make_report_hint())
    # Random signs for the heads of a layer test them together: two forward passes per layer.
    signs = torch.Generator().manual_seed(1)
    for layer in range(layout.layers):
        direction = torch.zeros(shape, dtype=torch.float64)
        direction[layer] = (
            torch.randint(0, 2, direction[layer].shape, generator=signs).double() * 2 - 1
        )
        with torch.no_grad():
            estimate = (value(ones + step * direction) - value(ones - step * direction)) / (
                2 * step
            )
        worst = max(worst, abs(float(estimate - (exact * direction).sum())) / scale)
    # 2% allows for the error of finite differences; written so that NaN fails.
    if not worst <= 2e-2:
        raise CheckFailedError(
            f"the gradient of the head masks differs from finite differences by {worst:.1%}",
            hint=_make_report_hint(),
        )
    return f"the gradient is within {worst:.2%} of finite differences"


def check_attention(model: ModelUnderTest) -> str:
    """Check that attention rows collected under sdpa equal the model's eager attention."""
    lm, layout = model.lm, model.lm.layout
    with torch.no_grad():
        (row,) = lm.run_rows(Query(model.rows, AttentionRows(model.tokens)), [0]).values
    # A copy, because the attention implementation is a setting of the whole model.
    eager = _copy_model(lm)
    eager.set_attn_implementation("eager")
    with torch.no_grad():
        batch = make_batch(model.rows, [0], pad=lm.tokens.pad, device=lm.device)
        full = eager.base_model(**batch.inputs, output_attentions=True).attentions
    if not full or len(full) != layout.layers:
        raise CheckFailedError(
            "the model returns no eager attention to compare with", hint=_make_report_hint()
        )
    tokens = list(model.tokens[0])
    expected = torch.stack([layer[0].cpu() for layer in full])[:, :, tokens].mean(2)
    worst = _distance(row, expected)
    return _require_within_tolerance(
        model, worst, "attention rows and eager attention differ by {:.1e}"
    )


def check_merging(model: ModelUnderTest) -> str:
    """Check that edits merged into the weights give the same output as hooks."""
    lm, layout = model.lm, model.lm.layout
    edits: list[Edit] = []
    # All calls of a shared layer get the same edits: only then can its weights carry them.
    for layer in model.layers_sharing_weights(layout.layers // 2):
        edits.append(HeadScale([Site("head_out", layer, layout.heads - 1)], 0.5))
        edits.extend(
            model.projection(Site(stream, layer, 0), 2)
            for stream in PER_HEAD_STREAMS
            if stream not in layout.family.position_shared_streams
        )
        # Where a norm follows the projection (Gemma 2 and 3), an edit cannot be merged.
        if is_linear(layout.hook_point("mlp_out", layer).module):
            edits.append(model.projection(Site("mlp_out", layer), 2))
    edited = lm.edited(*edits)
    hooked = model.run_all(edited)
    # Equality of both runs would be trivial if no edit acted.
    if torch.equal(hooked, model.run_all(lm)):
        raise CheckFailedError("the edits do not change the output", hint=_make_report_hint())
    worst = _distance(model.run_all(edited.merged()), hooked)
    return _require_within_tolerance(model, worst, "edits in hooks and in weights differ by {:.1e}")


def check_resuming(model: ModelUnderTest) -> str:
    """Check that a forward pass resumed from a cached layer input equals a complete one."""
    lm, layout = model.lm, model.lm.layout
    if layout.layers < 2:
        raise NothingToCheckError("the model has only one layer")
    layer = layout.layers // 2
    # Several rows where possible: a resumed pass must also rebuild the mask of a padded batch.
    indices = range(len(TEXTS)) if not lm.batching.equal_length_only else [0]
    edited = lm.edited(HeadScale([Site("head_out", layer, 0)], 0))
    with torch.no_grad():
        start = lm.run_rows(model.query, indices, cache_layers=[layer]).layer_inputs[layer]
        resumed = edited.run_rows(model.query, indices, resume_from=start).values
        full = edited.run_rows(model.query, indices).values
        unedited = lm.run_rows(model.query, indices).values
    worst = _distance(resumed, full)
    # A weak edit stays within the tolerance even if the layers above were not run.
    if torch.equal(resumed, unedited) and not torch.equal(full, unedited):
        raise CheckFailedError(
            "a resumed forward pass does not run the layers above", hint=_make_report_hint()
        )
    return _require_within_tolerance(
        model, worst, "resumed and complete forward passes differ by {:.1e}"
    )


def check_batches(model: ModelUnderTest) -> str:
    """Check that a text gives the same output alone, padded in a batch, and in a token tree."""
    lm = model.lm
    single, batched = lm.with_batch_size(1), lm.with_batch_size(len(TEXTS))
    worst = _distance(model.run_all(single), model.run_all(batched))
    if lm.layout.model_class.classifier:
        query = Query(model.rows, ClassLogProbs("classifier"))
        worst = max(worst, _distance(single.run(query), batched.run(query)))
    worst = max(worst, _compute_token_tree_distance(model))
    return _require_within_tolerance(model, worst, "batches of 1 and of 4 differ by {:.1e}")


def _compute_token_tree_distance(model: ModelUnderTest) -> float:
    """Return the difference between a token tree and separate rows for each continuation."""
    (prefix, *other_ids), run = (row.ids for row in model.rows), model.lm.run
    words = [ids[-4:] for ids in other_ids]
    tree_row, tree_positions = build_token_tree(prefix, words)
    if len(tree_row.ids) > max_tree_length(model.lm.layout, model.lm.tokens):
        return 0.0  # this model allows no branches, or none of this length
    separate_rows = tuple(TokenRow((*prefix, *word[:-1]), None) for word in words)
    ends = tuple((len(row.ids) - 1,) for row in separate_rows)
    branched = HiddenStates(tuple((positions[-1],) for positions in tree_positions))
    return _distance(
        run(Query((tree_row,) * len(words), branched)),
        run(Query(separate_rows, HiddenStates(ends))),
    )


def check_sites(model: ModelUnderTest) -> str:
    """Check that an edit at every stream of every layer changes the output."""
    lm, layout = model.lm, model.lm.layout
    unedited = model.run_first(lm)
    dead, count = [], 0
    for stream in STREAMS:
        for layer in (0,) if stream in LAYERLESS_STREAMS else range(layout.layers):
            if stream == "pooled" and not _has_pooled(lm):
                continue
            count += 1
            if not _has_effect(model, Site(stream, layer), unedited):
                dead.append(str(Site(stream, layer)))
    if dead:
        raise CheckFailedError(
            f"an edit has no effect at {', '.join(dead[:5])}", hint=_make_report_hint()
        )
    return f"an edit has an effect at each of {count} sites"


def check_untouched(model: ModelUnderTest) -> str:
    """Check that no hook of levelhead is left and that all weights are bit-identical."""
    lm = model.lm
    model.run_all(lm.edited(model.projection(Site("block_out", 0))))
    leftover = sorted(name for name, _ in find_hooks(lm) - model.hooks_at_start)
    if leftover:
        raise CheckFailedError(
            f"hooks were left at {', '.join(leftover[:3])}", hint=_make_report_hint()
        )
    if compute_fingerprint(lm) != model.fingerprint:
        raise CheckFailedError("the weights were changed", hint=_make_report_hint())
    return "no hook is left and the weights are bit-identical"


# `untouched` is the last: it covers all checks before it.
CHECKS: dict[str, Callable[[ModelUnderTest], str]] = {
    "scores": check_scores,
    "masking": check_masking,
    "gradient": check_gradient,
    "attention": check_attention,
    "merging": check_merging,
    "resuming": check_resuming,
    "batches": check_batches,
    "sites": check_sites,
    "untouched": check_untouched,
}


def find_hooks(lm: LM) -> frozenset[tuple[str, int]]:
    """Return the modules that have hooks, with the ids of the hooks."""
    return frozenset(
        (name, key)
        for name, module in lm.layout.model.named_modules()
        # By id: a hook that replaces another at the same module is a change, too.
        for key in (*module._forward_hooks, *module._forward_pre_hooks)
    )


def compute_fingerprint(lm: LM) -> str:
    """Compute the SHA-256 of all weights in memory; of offloaded weights, only their names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(lm.layout.model.state_dict().items()):
        digest.update(name.encode())
        if not tensor.is_meta:
            flat = tensor.detach().cpu().contiguous().flatten()
            # As bytes: numpy has no bfloat16.
            digest.update(memoryview(flat.view(torch.uint8).numpy()))
    return digest.hexdigest()


def _copy_model(lm: LM) -> PreTrainedModel:
    """Copy the model, so that changes of the copy do not affect the original."""
    if any(parameter.is_meta for parameter in lm.layout.model.parameters()):
        raise NothingToCheckError("some weights are offloaded by device_map")
    return copy.deepcopy(lm.layout.model)


def _is_empty(lm: LM, layer: int, head: int) -> bool:
    """Whether a head's output weights are all 0, as after merging a mask."""
    module, _, _ = lm.layout.hook_point("head_out", layer)
    size = lm.layout.head_dim
    weight = cast("torch.Tensor", module.weight)
    by_input = weight if is_transposed(module) else weight.T
    head_weights = by_input[head * size : (head + 1) * size]
    return not head_weights.is_meta and not bool(head_weights.any())


def _has_pooled(lm: LM) -> bool:
    try:
        lm.layout.hook_point("pooled", 0)
    except LevelheadError:
        return False
    return True


def _has_effect(model: ModelUnderTest, site: Site, unedited: torch.Tensor) -> bool:
    edited = model.lm.edited(model.projection(site, 4))
    if site.stream == "pooled":
        query = build.build_lm_hidden_states_query(model.lm, TEXTS[:1], [site], None, None)
        return not torch.equal(edited.run(query), model.lm.run(query))
    return not torch.equal(model.run_first(edited), unedited)


def _distance(first: torch.Tensor, second: torch.Tensor) -> float:
    """Return the largest difference as a share of the largest number; infinite for NaN."""
    first, second = first.double().cpu(), second.double().cpu()
    if first.shape != second.shape or not (first.isfinite().all() and second.isfinite().all()):
        return float("inf")
    # The bound only avoids a division by 0 where all numbers are 0.
    return float((first - second).abs().max() / second.abs().max().clamp(min=1e-30))


def _require_within_tolerance(model: ModelUnderTest, worst: float, template: str) -> str:
    # Written so that NaN fails.
    if not worst <= model.tolerance:
        raise CheckFailedError(template.format(worst), hint=_make_report_hint())
    return template.format(worst)


def _make_report_hint() -> str:
    versions = installed_versions()
    return (
        "do not trust scores of this model here; use versions that levelhead is tested with, or "
        "report the problem with these versions: "
        f"transformers {versions['transformers']}, torch {versions['torch']}"
    )
