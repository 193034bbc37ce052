"""Each line of the doctor sees exactly the property it is about: broken on purpose, it fails."""

import pytest
import torch
import zoo

from levelhead.models.diagnostics import doctor
from levelhead.models.diagnostics.doctor import CHECKS, run_checks
from levelhead.models.edits import merge as bake
from levelhead.models.edits.base import HeadScale
from levelhead.models.forward import attention_rows as attention
from levelhead.models.forward import forward_pass as forward
from levelhead.models.forward import hooks
from levelhead.models.inputs import batching as batches
from levelhead.models.inputs import token_tree as branches
from levelhead.models.loading.load import load
from levelhead.models.sites import Site


def lines(lm):
    return {finding.check: finding for finding in run_checks(lm)}


@pytest.fixture
def lm():
    return load(zoo.folder("bert", "BertForPreTraining"))


def another_softcap(lm, monkeypatch):
    """A release changes what comes after the vocabulary head."""
    lm.layout.model.config.final_logit_softcapping = 3.0


def ignored_masks(lm, monkeypatch):
    real = forward._gate_factors

    def ignoring(gate, layer, view):
        return real(torch.where(gate == 0, 1.0, gate), layer, view)

    monkeypatch.setattr(forward, "_gate_factors", ignoring)


def half_a_gradient(lm, monkeypatch):
    real = forward._gate_factors

    def halved(gate, layer, view):
        factor = real(gate, layer, view)
        return (factor + factor.detach()) / 2

    monkeypatch.setattr(forward, "_gate_factors", halved)


def another_scale(lm, monkeypatch):
    """A release scales attention scores where our row does not look."""
    real = attention._apply_mask
    monkeypatch.setattr(
        attention, "_apply_mask", lambda scores, *a, **k: real(scores * 1.1, *a, **k)
    )


def half_a_fold(lm, monkeypatch):
    real = bake._apply_update
    monkeypatch.setattr(
        bake,
        "_apply_update",
        lambda linear, fold: real(linear, fold) if fold.side == "input" else None,
    )


def a_stale_prefix(lm, monkeypatch):
    real = hooks._skip_layers
    monkeypatch.setattr(
        hooks,
        "_skip_layers",
        lambda blocks, start: real(blocks, start._replace(output=start.output * 1.01)),
    )


def rows_that_see_each_other(lm, monkeypatch):
    def mixing(module, args, output):
        return output + 0.01 * len(output) * torch.linspace(0, 1, output.shape[-1])

    lm.layout.blocks[-1].register_forward_hook(mixing)


def a_dead_site(lm, monkeypatch):
    real = forward.ForwardPass.process_activation

    def act(self, where, x):
        result = real(self, where, x)
        return (
            x if where == ("mlp_out", 1) and self.edits[-1].sites[0].stream == "mlp_out" else result
        )

    monkeypatch.setattr(forward.ForwardPass, "process_activation", act)
    # The merging check edits that place too, by design; it must not be what sees this.
    monkeypatch.setattr(doctor, "CHECKS", {k: v for k, v in CHECKS.items() if k != "merging"})


def moved_weights(lm, monkeypatch):
    """After merging, which refuses weights that moved."""
    bias, check = lm.layout.model.cls.seq_relationship.bias, CHECKS["sites"]

    def moving(*args):
        with torch.no_grad():
            bias.add_(1e-6)
        return check(*args)

    monkeypatch.setitem(CHECKS, "sites", moving)


SABOTAGE = {
    "scores": another_softcap,
    "masking": ignored_masks,
    "gradient": half_a_gradient,
    "attention": another_scale,
    "merging": half_a_fold,
    "resuming": a_stale_prefix,
    "batches": rows_that_see_each_other,
    "sites": a_dead_site,
    "untouched": moved_weights,
}


def test_every_check_has_its_sabotage():
    assert list(SABOTAGE) == list(CHECKS)


def test_a_healthy_model_passes(lm):
    result = lines(lm)
    assert list(result) == list(CHECKS)
    assert all(finding.holds for finding in result.values()), result


@pytest.mark.parametrize("check", SABOTAGE)
def test_the_line_fails_and_no_other(lm, monkeypatch, check):
    SABOTAGE[check](lm, monkeypatch)
    result = lines(lm)
    assert [name for name, finding in result.items() if not finding.holds] == [check], result
    assert "transformers" in result[check].hint


def test_branches_that_see_each_other_are_seen(monkeypatch):
    causal = load(zoo.folder("llama", "LlamaForCausalLM"))
    assert lines(causal)["batches"].holds

    def seen(rows, width):
        mask, places = branches.tree_attention_mask(rows, width)
        return torch.ones_like(mask).tril(), places

    monkeypatch.setattr(batches, "tree_attention_mask", seen)
    result = lines(causal)
    assert [name for name, finding in result.items() if finding.holds is False] == ["batches"]


def test_a_hook_left_behind_is_seen(lm, monkeypatch):
    real = hooks._register_hooks

    def leaving(passage, elsewhere):
        lm.layout.blocks[0].register_forward_hook(hooks._make_cache_hook(passage, [0] * 999))
        yield from real(passage, elsewhere)

    monkeypatch.setattr(hooks, "_register_hooks", leaving)
    assert lines(lm)["untouched"].message.startswith("hooks were left at")


def test_what_a_release_raises_is_a_line_that_fails(lm, monkeypatch):
    def gone(*args, **kwargs):
        raise TypeError("forward() got an unexpected keyword argument")

    monkeypatch.setattr(attention, "sdpa_attention_forward", gone)
    result = lines(lm)
    assert [name for name, finding in result.items() if not finding.holds] == ["attention"]
    assert "TypeError: forward() got" in result["attention"].message


def test_a_mask_that_meets_no_head_is_a_line_that_fails(lm):
    """The commonest silent break: the projection is no longer called as a module."""
    dense = lm.layout.blocks[1].attention.output.dense

    class Inlined(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.bias = dense.weight, dense.bias

        def __call__(self, x):
            return torch.nn.functional.linear(x, self.weight, self.bias)

    lm.layout.blocks[1].attention.output.dense = Inlined()
    result = lines(lm)
    assert not result["masking"].holds
    assert "never reaches head_out 1" in result["masking"].message


def test_a_head_that_was_baked_away_is_no_fault(lm):
    baked = lm.edited(HeadScale([Site("head_out", 1, 2)], 0)).merged()
    result = lines(baked)
    assert result["masking"].holds
    assert result["masking"].message.startswith(
        "11 of 12 heads change the output; 1 have no effect"
    )


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("albert", "AlbertForMaskedLM"),
        ("deberta-v2", "DebertaV2ForMaskedLM"),
        ("mobilebert", "MobileBertForPreTraining"),
        ("gpt2", "GPT2LMHeadModel"),
        ("gemma2", "Gemma2ForCausalLM"),
        ("opt", "OPTForCausalLM"),
        ("distilbert", "DistilBertForSequenceClassification"),
        ("roberta", "RobertaModel"),
    ],
)
def test_odd_families_are_healthy_too(family, name):
    result = lines(load(zoo.folder(family, name)))
    assert all(finding.holds is not False for finding in result.values()), result
    assert result["scores"].holds is (None if name == "RobertaModel" else True)


def test_half_precision_is_not_judged_by_differences(lm):
    coarse = load(zoo.folder("bert", "BertForPreTraining"), dtype="bfloat16")
    finding = lines(coarse)["gradient"]
    assert finding.holds is None
    assert "too imprecise" in finding.message
