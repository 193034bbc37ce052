"""The architectures we can look into, one row each.

A row says where a family keeps what we read and edit, in the module names of transformers 5. Adding
an architecture is adding a row; the battery in tests/contract/test_families.py then runs on it, and
`levelhead doctor` checks it on the user's own model and versions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from levelhead.core.errors import UnknownName

if TYPE_CHECKING:
    from levelhead.models.sites import Stream


@dataclass(frozen=True, kw_only=True)
class ModelClass:
    """A class of transformers, and the heads a checkpoint must hold to be loaded as it."""

    name: str
    vocabulary: tuple[str, ...] = ()
    """Modules that turn the last hidden state into scores over the vocabulary, in order."""
    causal: bool = False
    next_sentence: str = ""
    """The linear map from the pooled vector to (is next, is not)."""
    classifier: str = ""
    """The classifier's last linear map; what it is given is the stream `pooled`."""
    reads_first: str = ""
    """The linear map that reads the first token of the last layer, and nothing else does."""
    pooler: str = ""
    """Where no head follows: the module that returns the pooled vector."""
    marks: tuple[tuple[str, ...], ...] = ()
    """Beginnings of weight names: of every tuple, a checkpoint with this head holds one."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """Where one architecture keeps its parts. Paths in a layer are relative to that layer."""

    layers: str
    """The list of layers, from the base model."""
    out: str
    """The attention's output projection; its input is the concatenated head outputs."""
    qkv: tuple[str, str, str] | tuple[str]
    """The projections of queries, keys and values; a single one if they are fused."""
    fused: Literal["", "stacked", "by head"] = ""
    """How one projection holds all three: [q|k|v], or [q|k|v] of each head in turn."""
    mlp: str
    """What the feed-forward adds to the residual: its last projection, or the norm behind it."""
    classes: tuple[ModelClass, ...]
    """Tried in this order; the first whose heads the checkpoint really holds is taken."""
    shared: bool = False
    """ALBERT: one layer's weights are run several times, so a site is a call, not a module."""
    eager_row: str = ""
    """The attention module whose eager output holds the attention, where the family does not go
    through transformers' AttentionInterface under sdpa. Empty: it does, and a row costs O(T)."""
    positions_too: tuple[Stream, ...] = ()
    """Projections that are applied to position embeddings as well, if the config says
    share_att_key: an edit of the tokens' activations cannot be folded into their weights."""
    sees_padding: bool = False
    """MobileBERT: a token's embedding is mixed with its neighbours', padding included, so that
    only rows of one length may share a batch."""
    embedder: str = ""
    """The module that makes the embeddings, from the base model, where it is one."""
    keys_of_input: bool = False
    """Whether keys and values are linear in the layer's input: no norm stands before them, and no
    rotation behind. Then the last layer can be run for the tokens alone that are read."""
    branches: bool = False
    """Whether which tokens see which, and their places, can be given: one row for many words."""
    position_offset: int = 0
    """Position embeddings that no token may use (RoBERTa counts from its padding index)."""

    @property
    def is_causal(self) -> bool:
        """Whether tokens see only what stands before them."""
        return any(row.causal for row in self.classes)


def _bert(prefix: str, name: str) -> tuple[ModelClass, ...]:
    """BERT and MobileBERT: masked-word and next-sentence heads, together or alone."""
    masked = ("cls.predictions.transform.",)
    follows = ("cls.seq_relationship.",)
    first = f"{prefix}.pooler.dense"
    return (
        ModelClass(
            name=f"{name}ForPreTraining",
            vocabulary=("cls.predictions",),
            next_sentence="cls.seq_relationship",
            reads_first=first,
            marks=(masked, follows),
        ),
        ModelClass(
            name=f"{name}ForSequenceClassification",
            classifier="classifier",
            reads_first=first,
            marks=(("classifier.",),),
        ),
        ModelClass(name=f"{name}ForMaskedLM", vocabulary=("cls.predictions",), marks=(masked,)),
        ModelClass(
            name=f"{name}ForNextSentencePrediction",
            next_sentence="cls.seq_relationship",
            reads_first=first,
            marks=(follows,),
        ),
        ModelClass(name=f"{name}Model", pooler="pooler"),
    )


def _roberta(name: str) -> tuple[ModelClass, ...]:
    return (
        ModelClass(
            name=f"{name}ForSequenceClassification",
            classifier="classifier.out_proj",
            reads_first="classifier.dense",
            marks=(("classifier.out_proj.",), ("classifier.dense.",)),
        ),
        ModelClass(
            name=f"{name}ForMaskedLM", vocabulary=("lm_head",), marks=(("lm_head.dense.",),)
        ),
        ModelClass(name=f"{name}Model", pooler="pooler"),
    )


def _decoder(name: str, *, head: str = "ForCausalLM") -> tuple[ModelClass, ...]:
    return (
        ModelClass(
            name=f"{name}ForSequenceClassification", classifier="score", marks=(("score.",),)
        ),
        ModelClass(
            name=f"{name}{head}",
            vocabulary=("lm_head",),
            causal=True,
            marks=(("lm_head.", "embed_out."),),
        ),
        ModelClass(name=f"{name}Model"),
    )


_BERT = Family(
    layers="encoder.layer",
    out="attention.output.dense",
    qkv=("attention.self.query", "attention.self.key", "attention.self.value"),
    mlp="output.dense",
    keys_of_input=True,
    embedder="embeddings",
    classes=_bert("bert", "Bert"),
)
_LLAMA = Family(
    layers="layers",
    out="self_attn.o_proj",
    qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    mlp="mlp.down_proj",
    branches=True,
    classes=_decoder("Llama"),
)

_NORMED = "post_feedforward_layernorm"
# Behind Gemma's projection stands a norm that undoes any scale: a mask before it has no effect.

FAMILIES: dict[str, Family] = {
    "bert": _BERT,
    "roberta": replace(_BERT, classes=_roberta("Roberta"), position_offset=2),
    "xlm-roberta": replace(_BERT, classes=_roberta("XLMRoberta"), position_offset=2),
    "electra": replace(
        _BERT,
        classes=(
            _roberta("Electra")[0],
            ModelClass(
                name="ElectraForMaskedLM",
                vocabulary=("generator_predictions", "generator_lm_head"),
                marks=(("generator_predictions.",),),
            ),
            ModelClass(name="ElectraModel"),
        ),
    ),
    "mobilebert": replace(
        _BERT, classes=_bert("mobilebert", "MobileBert"), sees_padding=True, keys_of_input=False
    ),
    "albert": Family(
        layers="encoder.albert_layer_groups",
        out="attention.dense",
        qkv=("attention.query", "attention.key", "attention.value"),
        mlp="ffn_output",
        embedder="embeddings",
        keys_of_input=True,
        shared=True,
        classes=(
            ModelClass(
                name="AlbertForSequenceClassification",
                classifier="classifier",
                reads_first="albert.pooler",
                marks=(("classifier.",),),
            ),
            ModelClass(
                name="AlbertForMaskedLM",
                vocabulary=("predictions",),
                marks=(("predictions.dense.",),),
            ),
            ModelClass(name="AlbertModel", pooler="pooler_activation"),
        ),
    ),
    "distilbert": Family(
        layers="transformer.layer",
        out="attention.out_lin",
        qkv=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        mlp="ffn.lin2",
        embedder="embeddings",
        keys_of_input=True,
        classes=(
            ModelClass(
                name="DistilBertForSequenceClassification",
                classifier="classifier",
                reads_first="pre_classifier",
                marks=(("classifier.",), ("pre_classifier.",)),
            ),
            ModelClass(
                name="DistilBertForMaskedLM",
                vocabulary=("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),
                marks=(("vocab_transform.",),),
            ),
            ModelClass(name="DistilBertModel"),
        ),
    ),
    "modernbert": Family(
        layers="layers",
        out="attn.Wo",
        qkv=("attn.Wqkv",),
        fused="stacked",
        mlp="mlp.Wo",
        classes=(
            ModelClass(
                name="ModernBertForSequenceClassification",
                classifier="classifier",
                marks=(("classifier.",), ("head.dense.",)),
            ),
            ModelClass(
                name="ModernBertForMaskedLM",
                vocabulary=("head", "decoder"),
                marks=(("head.dense.",), ("decoder.",)),
            ),
            ModelClass(name="ModernBertModel"),
        ),
    ),
    "deberta-v2": Family(
        layers="encoder.layer",
        out="attention.output.dense",
        qkv=("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj"),
        mlp="output.dense",
        eager_row="attention.self",
        positions_too=("query", "key"),
        classes=(
            ModelClass(
                name="DebertaV2ForSequenceClassification",
                classifier="classifier",
                reads_first="pooler.dense",
                marks=(("classifier.",), ("pooler.dense.",)),
            ),
            ModelClass(
                name="DebertaV2ForMaskedLM",
                vocabulary=("cls",),
                marks=(("cls.predictions.transform.",),),
            ),
            ModelClass(name="DebertaV2Model"),
        ),
    ),
    "gpt2": Family(
        layers="h",
        out="attn.c_proj",
        qkv=("attn.c_attn",),
        fused="stacked",
        mlp="mlp.c_proj",
        branches=True,
        classes=_decoder("GPT2", head="LMHeadModel"),
    ),
    "gpt_neo": Family(
        layers="h",
        out="attn.attention.out_proj",
        qkv=("attn.attention.q_proj", "attn.attention.k_proj", "attn.attention.v_proj"),
        mlp="mlp.c_proj",
        eager_row="attn.attention",
        classes=_decoder("GPTNeo"),
    ),
    "gpt_neox": Family(
        layers="layers",
        out="attention.dense",
        qkv=("attention.query_key_value",),
        fused="by head",
        mlp="mlp.dense_4h_to_h",
        branches=True,
        classes=_decoder("GPTNeoX"),
    ),
    "opt": Family(
        layers="decoder.layers",
        out="self_attn.out_proj",
        qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        mlp="fc2",
        branches=True,
        classes=_decoder("OPT"),
    ),
    "bloom": Family(
        layers="h",
        out="self_attention.dense",
        qkv=("self_attention.query_key_value",),
        fused="by head",
        mlp="mlp.dense_4h_to_h",
        eager_row="self_attention",
        classes=_decoder("Bloom"),
    ),
    "llama": _LLAMA,
    "mistral": replace(_LLAMA, classes=_decoder("Mistral")),
    "qwen2": replace(_LLAMA, classes=_decoder("Qwen2")),
    "qwen3": replace(_LLAMA, classes=_decoder("Qwen3")),
    "gemma2": replace(
        _LLAMA, classes=_decoder("Gemma2"), eager_row="self_attn", branches=False, mlp=_NORMED
    ),
    "gemma3_text": replace(
        _LLAMA,
        mlp=_NORMED,
        classes=(_decoder("Gemma3Text")[0], _decoder("Gemma3")[1], _decoder("Gemma3Text")[2]),
    ),
    "phi3": replace(
        _LLAMA,
        qkv=("self_attn.qkv_proj",),
        fused="stacked",
        classes=_decoder("Phi3"),
    ),
}


def family(model_type: str) -> Family:
    """The row of an architecture, by transformers' `model_type`."""
    if model_type not in FAMILIES:
        raise UnknownName("architecture", model_type, FAMILIES)
    return FAMILIES[model_type]
