"""The table of supported architectures, one row each.

A row says in which modules a family has what levelhead reads and edits, by the module names of
transformers 5. To add an architecture, add a row; the battery in tests/contract/test_families.py
then runs on it, and `levelhead doctor` checks it on the user's model and versions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from levelhead.core.errors import UnknownNameError

if TYPE_CHECKING:
    from levelhead.models.sites import Stream


@dataclass(frozen=True, kw_only=True)
class ModelClass:
    """A class of transformers, and the heads that a checkpoint needs to be loaded as this class."""

    name: str
    vocabulary: tuple[str, ...] = ()
    """Modules that compute vocabulary scores from the last hidden state, in order."""
    causal: bool = False
    next_sentence: str = ""
    """The linear map from the pooled vector to (is next, is not)."""
    classifier: str = ""
    """The classifier's last linear map; its input is the stream `pooled`."""
    first_position_reader: str = ""
    """The only linear map that reads the first token of the last layer."""
    pooler: str = ""
    """The module that returns the pooled vector, in a class without a head."""
    weight_prefixes: tuple[tuple[str, ...], ...] = ()
    """Prefixes of weight names: a checkpoint with this head has one prefix of every tuple."""


@dataclass(frozen=True, kw_only=True)
class ModelFamily:
    """The modules of one architecture. Paths inside a layer are relative to that layer."""

    layers: str
    """Path of the list of layers in the base model."""
    attention_output: str
    """The attention's output projection; its input is the concatenated head outputs."""
    qkv: tuple[str, str, str] | tuple[str]
    """The projections of queries, keys and values; a single one if they are fused."""
    fused: Literal["", "stacked", "by head"] = ""
    """How one projection holds all three: [q|k|v], or [q|k|v] for each head in turn."""
    mlp_output: str
    """The last part of the feed-forward before the residual: its last projection, or a norm."""
    classes: tuple[ModelClass, ...]
    """Classes in the order in which they are tried; the first whose heads the checkpoint holds is
    used."""
    shares_layer_weights: bool = False
    """ALBERT: one layer's weights run several times, so a site is a call and not a module."""
    eager_attention_module: str = ""
    """The attention module whose eager output holds the attention, for families that do not use
    transformers' AttentionInterface under sdpa. Empty: the family uses it, and a row costs O(T)."""
    position_shared_streams: tuple[Stream, ...] = ()
    """Projections that are also applied to position embeddings if the config sets share_att_key:
    an edit of the tokens' activations cannot be merged into their weights."""
    padding_sensitive: bool = False
    """MobileBERT: a token's embedding is mixed with those of its neighbours, padding included, so
    that only rows of one length may share a batch."""
    embedder: str = ""
    """Path of the module that computes the embeddings in the base model, if it is one module."""
    keys_linear_in_input: bool = False
    """Whether keys and values are linear in the layer's input: there is no norm before them and no
    rotation after them. Then the last layer can run only for the tokens that are read."""
    supports_token_tree: bool = False
    """Whether the model accepts an attention mask and positions for each token, so that one row
    can hold many words."""
    position_offset: int = 0
    """Number of position embeddings that no token uses (RoBERTa counts from its padding index)."""

    @property
    def is_causal(self) -> bool:
        """Whether a token attends only to itself and to the tokens before it."""
        return any(row.causal for row in self.classes)


def _bert_classes(prefix: str, name: str) -> tuple[ModelClass, ...]:
    """Classes of BERT and MobileBERT: masked-word and next-sentence heads, together or alone."""
    # Not the decoder: its weights are tied to the embeddings and often not stored.
    masked = ("cls.predictions.transform.",)
    next_sentence = ("cls.seq_relationship.",)
    first = f"{prefix}.pooler.dense"
    return (
        ModelClass(
            name=f"{name}ForPreTraining",
            vocabulary=("cls.predictions",),
            next_sentence="cls.seq_relationship",
            first_position_reader=first,
            weight_prefixes=(masked, next_sentence),
        ),
        ModelClass(
            name=f"{name}ForSequenceClassification",
            classifier="classifier",
            first_position_reader=first,
            weight_prefixes=(("classifier.",),),
        ),
        ModelClass(
            name=f"{name}ForMaskedLM", vocabulary=("cls.predictions",), weight_prefixes=(masked,)
        ),
        ModelClass(
            name=f"{name}ForNextSentencePrediction",
            next_sentence="cls.seq_relationship",
            first_position_reader=first,
            weight_prefixes=(next_sentence,),
        ),
        # Without prefixes every checkpoint fits, so a class without a head is tried last.
        ModelClass(name=f"{name}Model", pooler="pooler"),
    )


def _roberta_classes(name: str) -> tuple[ModelClass, ...]:
    return (
        ModelClass(
            name=f"{name}ForSequenceClassification",
            classifier="classifier.out_proj",
            first_position_reader="classifier.dense",
            weight_prefixes=(("classifier.out_proj.",), ("classifier.dense.",)),
        ),
        ModelClass(
            name=f"{name}ForMaskedLM",
            vocabulary=("lm_head",),
            weight_prefixes=(("lm_head.dense.",),),
        ),
        ModelClass(name=f"{name}Model", pooler="pooler"),
    )


def _decoder_classes(name: str, *, head: str = "ForCausalLM") -> tuple[ModelClass, ...]:
    return (
        ModelClass(
            name=f"{name}ForSequenceClassification",
            classifier="score",
            weight_prefixes=(("score.",),),
        ),
        ModelClass(
            name=f"{name}{head}",
            vocabulary=("lm_head",),
            causal=True,
            # Checkpoints of GPT-NeoX (Pythia) store the head as embed_out.
            weight_prefixes=(("lm_head.", "embed_out."),),
        ),
        ModelClass(name=f"{name}Model"),
    )


_BERT = ModelFamily(
    layers="encoder.layer",
    attention_output="attention.output.dense",
    qkv=("attention.self.query", "attention.self.key", "attention.self.value"),
    mlp_output="output.dense",
    # Post-norm: keys and values are projections of the layer's input itself.
    keys_linear_in_input=True,
    embedder="embeddings",
    classes=_bert_classes("bert", "Bert"),
)
_LLAMA = ModelFamily(
    layers="layers",
    attention_output="self_attn.o_proj",
    qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    mlp_output="mlp.down_proj",
    supports_token_tree=True,
    classes=_decoder_classes("Llama"),
)

# Gemma applies a norm after the projection, which undoes any scale: a factor before it would have
# no effect.
_POST_MLP_NORM = "post_feedforward_layernorm"

FAMILIES: dict[str, ModelFamily] = {
    "bert": _BERT,
    "roberta": replace(_BERT, classes=_roberta_classes("Roberta"), position_offset=2),
    # Positions start after the padding index, which is 1.
    "xlm-roberta": replace(_BERT, classes=_roberta_classes("XLMRoberta"), position_offset=2),
    # Only the generator is a language model; the discriminator has no vocabulary head.
    "electra": replace(
        _BERT,
        classes=(
            _roberta_classes("Electra")[0],
            ModelClass(
                name="ElectraForMaskedLM",
                vocabulary=("generator_predictions", "generator_lm_head"),
                weight_prefixes=(("generator_predictions.",),),
            ),
            ModelClass(name="ElectraModel"),
        ),
    ),
    "mobilebert": replace(
        _BERT,
        classes=_bert_classes("mobilebert", "MobileBert"),
        padding_sensitive=True,
        # Bottleneck layers, with norms of their own, come before the projections.
        keys_linear_in_input=False,
    ),
    "albert": ModelFamily(
        layers="encoder.albert_layer_groups",
        attention_output="attention.dense",
        qkv=("attention.query", "attention.key", "attention.value"),
        mlp_output="ffn_output",
        embedder="embeddings",
        keys_linear_in_input=True,
        shares_layer_weights=True,
        classes=(
            ModelClass(
                name="AlbertForSequenceClassification",
                classifier="classifier",
                # A linear map, where BERT's pooler is a module around one.
                first_position_reader="albert.pooler",
                weight_prefixes=(("classifier.",),),
            ),
            ModelClass(
                name="AlbertForMaskedLM",
                vocabulary=("predictions",),
                weight_prefixes=(("predictions.dense.",),),
            ),
            # `pooler` is only the linear map; this is the tanh after it, which returns the vector.
            ModelClass(name="AlbertModel", pooler="pooler_activation"),
        ),
    ),
    "distilbert": ModelFamily(
        layers="transformer.layer",
        attention_output="attention.out_lin",
        qkv=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        # Attention and feed-forward are projections without a norm of their own.
        mlp_output="ffn.lin2",
        embedder="embeddings",
        keys_linear_in_input=True,
        classes=(
            ModelClass(
                name="DistilBertForSequenceClassification",
                classifier="classifier",
                first_position_reader="pre_classifier",
                weight_prefixes=(("classifier.",), ("pre_classifier.",)),
            ),
            ModelClass(
                name="DistilBertForMaskedLM",
                vocabulary=("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),
                weight_prefixes=(("vocab_transform.",),),
            ),
            ModelClass(name="DistilBertModel"),
        ),
    ),
    "modernbert": ModelFamily(
        layers="layers",
        attention_output="attn.Wo",
        qkv=("attn.Wqkv",),
        fused="stacked",
        mlp_output="mlp.Wo",
        classes=(
            # Its head reads the first token or the mean of all (config.classifier_pooling), so no
            # map reads only the first token.
            ModelClass(
                name="ModernBertForSequenceClassification",
                classifier="classifier",
                weight_prefixes=(("classifier.",), ("head.dense.",)),
            ),
            ModelClass(
                name="ModernBertForMaskedLM",
                vocabulary=("head", "decoder"),
                weight_prefixes=(("head.dense.",), ("decoder.",)),
            ),
            ModelClass(name="ModernBertModel"),
        ),
    ),
    "deberta-v2": ModelFamily(
        layers="encoder.layer",
        attention_output="attention.output.dense",
        qkv=("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj"),
        mlp_output="output.dense",
        # Disentangled attention is computed outside of sdpa.
        eager_attention_module="attention.self",
        position_shared_streams=("query", "key"),
        classes=(
            ModelClass(
                name="DebertaV2ForSequenceClassification",
                classifier="classifier",
                first_position_reader="pooler.dense",
                weight_prefixes=(("classifier.",), ("pooler.dense.",)),
            ),
            ModelClass(
                name="DebertaV2ForMaskedLM",
                vocabulary=("cls",),
                weight_prefixes=(("cls.predictions.transform.",),),
            ),
            ModelClass(name="DebertaV2Model"),
        ),
    ),
    "gpt2": ModelFamily(
        layers="h",
        attention_output="attn.c_proj",
        qkv=("attn.c_attn",),
        fused="stacked",
        mlp_output="mlp.c_proj",
        supports_token_tree=True,
        classes=_decoder_classes("GPT2", head="LMHeadModel"),
    ),
    "gpt_neo": ModelFamily(
        layers="h",
        attention_output="attn.attention.out_proj",
        qkv=("attn.attention.q_proj", "attn.attention.k_proj", "attn.attention.v_proj"),
        mlp_output="mlp.c_proj",
        # Computes its attention in float32 by itself, without the interface.
        eager_attention_module="attn.attention",
        classes=_decoder_classes("GPTNeo"),
    ),
    "gpt_neox": ModelFamily(
        layers="layers",
        attention_output="attention.dense",
        qkv=("attention.query_key_value",),
        fused="by head",
        mlp_output="mlp.dense_4h_to_h",
        supports_token_tree=True,
        classes=_decoder_classes("GPTNeoX"),
    ),
    # OPT's embedding adds its two unused positions to those that the config states, so the offset
    # is 0.
    "opt": ModelFamily(
        layers="decoder.layers",
        attention_output="self_attn.out_proj",
        qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        mlp_output="fc2",
        supports_token_tree=True,
        classes=_decoder_classes("OPT"),
    ),
    "bloom": ModelFamily(
        layers="h",
        attention_output="self_attention.dense",
        qkv=("self_attention.query_key_value",),
        fused="by head",
        mlp_output="mlp.dense_4h_to_h",
        # Adds ALiBi's biases to the scores by itself (baddbmm), without the interface.
        eager_attention_module="self_attention",
        classes=_decoder_classes("Bloom"),
    ),
    "llama": _LLAMA,
    "mistral": replace(_LLAMA, classes=_decoder_classes("Mistral")),
    "qwen2": replace(_LLAMA, classes=_decoder_classes("Qwen2")),
    "qwen3": replace(_LLAMA, classes=_decoder_classes("Qwen3")),
    "gemma2": replace(
        _LLAMA,
        classes=_decoder_classes("Gemma2"),
        # transformers refuses sdpa here, because it lacks the soft cap of the scores.
        eager_attention_module="self_attn",
        # It computes eager attention, which needs another kind of mask.
        supports_token_tree=False,
        mlp_output=_POST_MLP_NORM,
    ),
    "gemma3_text": replace(
        _LLAMA,
        mlp_output=_POST_MLP_NORM,
        # The text model's causal class has no "Text" in its name.
        classes=(
            _decoder_classes("Gemma3Text")[0],
            _decoder_classes("Gemma3")[1],
            _decoder_classes("Gemma3Text")[2],
        ),
    ),
    "phi3": replace(
        _LLAMA,
        qkv=("self_attn.qkv_proj",),
        fused="stacked",
        classes=_decoder_classes("Phi3"),
    ),
}


def get_family(model_type: str) -> ModelFamily:
    """Return the row of an architecture, by transformers' `model_type`."""
    # An unknown architecture is refused: guessed module names could hook the wrong place.
    if model_type not in FAMILIES:
        raise UnknownNameError("architecture", model_type, FAMILIES)
    return FAMILIES[model_type]
