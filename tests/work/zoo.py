"""A tiny random model of every family, written to disk as a real checkpoint."""

import functools
import tempfile
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

transformers.logging.disable_progress_bar()

WORDS = [
    *("the", "a", "nurse", "doctor", "man", "woman", "works", "as", "and", "is", "here", "there"),
    *("said", "that", "he", "she", "was", "tired", "quick", "lazy", "house", "river", "in", "."),
]
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"]
VOCABULARY = len(SPECIAL) + len(WORDS)

# Sizes that are never what hidden / heads would suggest by accident.
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
ROPE = SMALL | {"num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2}
GPT = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}

UP_CASTING = {
    # These up-cast a softmax or a norm to float32, so finite differences are as rough as that.
    *("modernbert", "gpt_neo", "gpt_neox", "bloom", "llama", "mistral", "qwen2", "qwen3"),
    *("gemma2", "gemma3_text", "phi3"),
}

SMOOTH = "gelu"  # finite differences across the corner of a ReLU are no derivative

# Family: (config class, its settings). The class of the model is the family's first that fits.
CONFIGS = {
    "bert": ("BertConfig", SMALL),
    "roberta": ("RobertaConfig", SMALL | {"type_vocab_size": 1}),
    "xlm-roberta": ("XLMRobertaConfig", SMALL | {"type_vocab_size": 1}),
    "albert": ("AlbertConfig", SMALL | {"embedding_size": 12, "num_hidden_groups": 1}),
    "distilbert": (
        "DistilBertConfig",
        {
            "vocab_size": VOCABULARY,
            "dim": 24,
            "n_layers": 3,
            "n_heads": 4,
            "hidden_dim": 40,
            "max_position_embeddings": 64,
            "pad_token_id": 0,
        },
    ),
    "electra": ("ElectraConfig", SMALL | {"embedding_size": 12}),
    "mobilebert": (
        "MobileBertConfig",
        SMALL
        | {
            "embedding_size": 12,
            "intra_bottleneck_size": 16,
            "num_feedforward_networks": 2,
            "hidden_act": SMOOTH,
        },
    ),
    "modernbert": (
        "ModernBertConfig",
        SMALL
        | {
            "global_attn_every_n_layers": 2,
            "local_attention": 8,
            "cls_token_id": 1,
            "sep_token_id": 2,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "deberta-v2": (
        "DebertaV2Config",
        SMALL
        | {
            "relative_attention": True,
            "position_buckets": 8,
            "pos_att_type": ["p2c", "c2p"],
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "conv_kernel_size": 3,
            "type_vocab_size": 0,
        },
    ),
    "gpt2": ("GPT2Config", GPT | {"n_embd": 24, "n_layer": 3, "n_head": 4, "n_positions": 64}),
    "gpt_neo": (
        "GPTNeoConfig",
        GPT
        | {
            "hidden_size": 24,
            "num_layers": 3,
            "num_heads": 4,
            "max_position_embeddings": 64,
            "attention_types": [[["global", "local", "global"], 1]],
            "window_size": 4,
            "intermediate_size": 40,
        },
    ),
    "gpt_neox": ("GPTNeoXConfig", SMALL | {"bos_token_id": 1, "eos_token_id": 2}),
    "opt": (
        "OPTConfig",
        {**SMALL, "ffn_dim": 40, "word_embed_proj_dim": 12, "activation_function": SMOOTH},
    ),
    "bloom": ("BloomConfig", GPT | {"hidden_size": 24, "n_layer": 3, "n_head": 4}),
    "llama": ("LlamaConfig", ROPE),
    "mistral": ("MistralConfig", ROPE | {"sliding_window": 4}),
    "qwen2": ("Qwen2Config", ROPE),
    "qwen3": ("Qwen3Config", ROPE | {"head_dim": 10}),
    "gemma2": ("Gemma2Config", ROPE | {"head_dim": 10, "sliding_window": 4}),
    "gemma3_text": ("Gemma3TextConfig", ROPE | {"head_dim": 10, "sliding_window": 4}),
    "phi3": ("Phi3Config", ROPE),
}


def tokenizer(*, decoder=False):
    """A word-level tokenizer: [CLS] text [SEP] for encoders, a beginning token for decoders."""
    words = {word: i for i, word in enumerate(SPECIAL + WORDS)}
    inner = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    inner.normalizer = normalizers.Lowercase()
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    marks = [("[CLS]", 1), ("[SEP]", 2)]
    if decoder:
        inner.post_processor = processors.TemplateProcessing(
            single="[CLS] $A", pair="[CLS] $A $B:1", special_tokens=marks[:1]
        )
    else:
        inner.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=marks
        )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        bos_token="[CLS]" if decoder else None,
        model_max_length=64,
    )


def built(family, model_class, *, seed=0, **changes):
    """A random model of a family, with weights large enough that everything matters."""
    name, settings = CONFIGS[family]
    torch.manual_seed(seed)
    config = getattr(transformers, name)(**(settings | changes))
    model = getattr(transformers, model_class)(config)
    scale = 0.15 if family == "mobilebert" else 0.25  # it has no norms to tame what grows
    with torch.no_grad():
        for parameter in model.parameters():
            # Biases start at 0, where a lost one would not show.
            if parameter.dim() > 1 or parameter.abs().max() == 0:
                parameter.normal_(0, scale)
    model.tie_weights()
    return model.eval()


@functools.cache
def folder(family, model_class, **changes):
    """A checkpoint of a tiny random model on disk, written once a run."""
    keep = tempfile.TemporaryDirectory(prefix=f"zoo-{family}-")
    _kept.append(keep)
    path = Path(keep.name)
    built(family, model_class, **changes).save_pretrained(path)
    decoder = "CausalLM" in model_class or "LMHead" in model_class or family in DECODERS
    tokenizer(decoder=decoder).save_pretrained(path)
    return path


DECODERS = tuple(CONFIGS)[9:]
_kept = []
