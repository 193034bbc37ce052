"""Generation: the tokens of the literal loop, with the edits of the model at every step."""

import functools

import pytest
import torch
import zoo
from assets import asset, smollm2
from shifts import conditional_shift, shift
from slow_generation import generate_slowly

from levelhead.core.errors import LevelheadError
from levelhead.models.architectures.families import FAMILIES
from levelhead.models.edits.base import HeadScale, Projection
from levelhead.models.forward.forward_pass import EditHadNoEffectError
from levelhead.models.generation import edited_decoding
from levelhead.models.generation.config import GenerationConfig
from levelhead.models.generation.in_process import generate_texts
from levelhead.models.inputs.chat import ChatFormat
from levelhead.models.loading.checkpoints import MissingHeadError
from levelhead.models.loading.load import load
from levelhead.models.sites import Site

PROMPTS = ["the nurse said that", "the doctor is", "a man", "the quick lazy woman was here and is"]
GREEDY = GenerationConfig(max_tokens=8, temperature=0)
SAMPLED = GenerationConfig(max_tokens=8)
FIVE = ["gpt2", "llama", "qwen2", "gpt_neox", "opt"]


@functools.cache
def tiny(family, dtype="float64"):
    head = next(row.name for row in FAMILIES[family].classes if row.causal)
    return load(zoo.folder(family, head), dtype=dtype)


def direction(lm, seed=0):
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(lm.layout.width, 1, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(drawn).Q.T.contiguous()


def edits_of(lm):
    """Masked heads, scaled heads and a projection."""
    return (
        HeadScale([Site("head_out", 0, 1), Site("head_out", 2, 3)], 0),
        HeadScale([Site("head_out", 1, 0)], 2.5),
        Projection(Site("mlp_out", 1), direction(lm)),
    )


def steering_of(lm):
    """Edits of several layers that act on each new token; a detector decides token by token."""
    return (
        shift(lm, Site("block_out", 0), strength=0.5),
        conditional_shift(lm, Site("block_out", 1)),
        conditional_shift(lm, Site("head_out", 2, 1), k=1),
    )


def ids_of(lm, config, prompts=PROMPTS, numbers=None):
    numbers = list(range(len(prompts))) if numbers is None else numbers
    return [text.ids for text in generate_texts(lm, prompts, numbers, config)]


@pytest.mark.parametrize("family", FIVE)
def test_hooks_give_the_tokens_of_merged_weights_and_of_the_literal_loop(family):
    lm = tiny(family)
    edited = lm.edited(*edits_of(lm))
    for config in (GREEDY, SAMPLED):
        result = ids_of(edited, config)
        assert result == ids_of(edited.merged(), config)
        assert result == generate_slowly(edited, PROMPTS, range(4), config)
        assert result != ids_of(lm, config)


@pytest.mark.parametrize("family", zoo.DECODERS)
def test_steering_acts_in_every_step_of_decoding(family):
    lm = tiny(family)
    edited = lm.edited(*steering_of(lm))
    result = ids_of(edited, SAMPLED)
    assert result == generate_slowly(edited, PROMPTS, range(4), SAMPLED)
    assert result != ids_of(lm, SAMPLED)


@pytest.mark.parametrize("family", [name for name in zoo.DECODERS if name not in FIVE])
def test_other_families_give_the_tokens_of_the_literal_loop(family):
    lm = tiny(family)
    edited = lm.edited(*edits_of(lm))
    assert ids_of(edited, SAMPLED) == generate_slowly(edited, PROMPTS, range(4), SAMPLED)


@pytest.mark.parametrize("family", ["gpt2", "bloom", "opt", "mistral", "gemma2", "gpt_neo"])
def test_padded_batches_of_float32_change_nothing(family):
    """Prompts of four lengths share a batch; sliding windows and relative positions too."""
    lm = tiny(family, "float32")
    edited = lm.edited(*edits_of(lm))
    result = ids_of(edited, SAMPLED)
    assert result == ids_of(edited.with_batch_size(1), SAMPLED)
    assert result == ids_of(edited, SAMPLED, PROMPTS[::-1], [3, 2, 1, 0])[::-1]
    assert result == generate_slowly(edited, PROMPTS, range(4), SAMPLED)


@pytest.mark.parametrize("config", [GREEDY, SAMPLED])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_edit_of_the_first_token_acts_on_the_first_token_only(config, dtype):
    lm = tiny("llama", dtype)
    edited = lm.edited(Projection(Site("block_out", 0), direction(lm), tokens="first"))
    result = ids_of(edited, config)
    assert result == generate_slowly(edited, PROMPTS, range(4), config)
    assert result != ids_of(lm, config)


def test_an_edit_that_is_not_reached_raises(monkeypatch):
    lm = tiny("llama")
    behind = Projection(Site("block_out", 2), direction(lm), tokens="first")
    with pytest.raises(EditHadNoEffectError, match="acts after everything that is read"):
        ids_of(lm.edited(behind), GREEDY)
    # A layer that a decoding step does not call: its edit must not be lost silently.
    edited = lm.edited(HeadScale([Site("head_out", 1, 0)], 0))
    layer = lm.layout.blocks[1]
    forward, calls = layer.forward, []

    def skips_later_steps(hidden_states, *args, **kwargs):
        calls.append(1)
        return forward(hidden_states, *args, **kwargs) if len(calls) < 3 else hidden_states

    monkeypatch.setattr(layer, "forward", skips_later_steps)
    with pytest.raises(EditHadNoEffectError, match="never reaches"):
        ids_of(edited, GREEDY, PROMPTS[:1])
    assert len(calls) == 3


def test_the_model_is_as_before_also_after_an_error(monkeypatch):
    lm = tiny("llama", "float32")
    model = lm.layout.model
    config = model.generation_config
    ids_of(lm.edited(*edits_of(lm)), GREEDY)
    assert "forward" not in vars(model)
    assert model.generation_config is config
    weight = model.lm_head.weight.data
    monkeypatch.setattr(model.lm_head.weight, "data", weight * float("nan"))
    for how in (GREEDY, SAMPLED):
        with pytest.raises(LevelheadError, match="NaN or infinity"):
            ids_of(lm.edited(*edits_of(lm)), how)
    monkeypatch.setattr(model.lm_head.weight, "data", weight)
    assert "forward" not in vars(model)
    assert model.generation_config is config
    assert not lm.layout.running_threads
    assert not any(module._forward_hooks for module in model.modules())


def test_settings_of_the_checkpoint_do_not_act_but_its_ends_of_a_turn_do():
    lm = tiny("llama", "float32")
    model, base = lm.layout.model, ids_of(lm, GREEDY)
    try:
        for name, value in {
            "repetition_penalty": 50.0,
            "temperature": 9.0,
            "do_sample": True,
            "no_repeat_ngram_size": 1,
            "suppress_tokens": list(base[0]),
            "max_length": 5,
            "min_new_tokens": 8,
            "num_beams": 3,
        }.items():
            setattr(model.generation_config, name, value)
        assert ids_of(lm, GREEDY) == base
        model.generation_config.eos_token_id = [base[0][2]]
        (text,) = generate_texts(lm, PROMPTS[:1], [0], GREEDY)
        assert text.ids == base[0][: base[0].index(base[0][2]) + 1]
        assert text.finish_reason == "stop"
    finally:
        model.generation_config = type(model.generation_config).from_model_config(model.config)


def test_batches_are_halved_when_memory_runs_out(monkeypatch):
    lm = tiny("gpt2", "float32").with_batch_size(4)
    expected, generate, sizes = ids_of(lm, SAMPLED), lm.layout.model.generate, []

    def short_of_memory(input_ids, **options):
        sizes.append(len(input_ids))
        if len(input_ids) > 2:
            raise torch.OutOfMemoryError("out of memory")
        return generate(input_ids=input_ids, **options)

    monkeypatch.setattr(lm.layout.model, "generate", short_of_memory)
    done = []
    result = ids_of(lm.with_progress(lambda *progress: done.append(progress)), SAMPLED)
    assert result == expected
    assert sizes == [4, 2, 2]
    assert done == [(2, 4), (4, 4)]
    assert lm.batching.smallest_size == 2


def test_each_step_is_one_pass_of_one_token(monkeypatch):
    """The cache of keys and values is used: after the prompt, only the new token is run."""
    lm, shapes = tiny("llama", "float32"), []
    original = edited_decoding.ForwardPass

    def recorded(*args, **options):
        result = original(*args, **options)
        shapes.append(result.shape)
        return result

    monkeypatch.setattr(edited_decoding, "ForwardPass", recorded)
    ids_of(lm, GenerationConfig(4, 0), ["the nurse said that"] * 2)
    assert shapes == [(2, 5), (2, 1), (2, 1), (2, 1)]


def test_lm_generate_groups_texts_by_prompt():
    lm = tiny("llama", "float32")
    result = lm.generate(PROMPTS[:2], SAMPLED, n=3)
    assert [len(texts) for texts in result] == [3, 3]
    flat = generate_texts(lm, [PROMPTS[0]] * 3 + [PROMPTS[1]] * 3, [0, 1, 2, 0, 1, 2], SAMPLED)
    assert [text for texts in result for text in texts] == flat
    with pytest.raises(LevelheadError, match="all texts would be equal"):
        lm.generate(PROMPTS, GREEDY, n=2)
    with pytest.raises(LevelheadError, match="single text"):
        lm.generate(PROMPTS[0], GREEDY)
    with pytest.raises(MissingHeadError, match="generate needs a head"):
        load(zoo.folder("bert", "BertForMaskedLM")).generate(PROMPTS)


def test_a_chat_model_answers_and_ends_its_turn():
    lm = load(smollm2())
    chat = ChatFormat(system="Answer with one word.")
    ((text,),) = lm.generate(
        ["What is the capital of France?"], GenerationConfig(16, temperature=0), chat=chat
    )
    assert "Paris" in text.text
    assert text.finish_reason == "stop"
    prompt = chat.format_request(lm.tokens, "What is the capital of France?")
    assert text.prompt_tokens == len(lm.tokens.encode([prompt])[0].row.ids)
    assert "<|im_end|>" not in text.text


@pytest.mark.full
@pytest.mark.parametrize("name", ["stories15m", "smollm2"])
def test_real_weights_give_the_tokens_of_the_literal_loop(name):
    # More than 5 s: the literal loop runs every token of every text again at every step.
    # float64: in float32 a token of a large vocabulary depends on rounding once in some hundred.
    folder = smollm2() if name == "smollm2" else asset("models", name)
    lm = load(folder, dtype="float64")
    edited = lm.edited(
        HeadScale([Site("head_out", 0, 1), Site("head_out", 2, 3)], 0),
        Projection(Site("mlp_out", 1), direction(lm)),
    )
    prompts = ["The nurse said that", "The old doctor went home because", "She"]
    for config in (GenerationConfig(24, 0), GenerationConfig(24)):
        result = ids_of(edited, config, prompts)
        assert result == generate_slowly(edited, prompts, range(3), config)
        assert result == ids_of(edited.merged(), config, prompts)
