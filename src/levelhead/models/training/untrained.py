"""Small models before any training, whose weights are to be written by hand."""

from __future__ import annotations

import transformers

from levelhead.models.training.from_scratch import CLS, PAD, SEP


def make_untrained_gpt2(
    n_tokens: int, *, width: int, heads: int, inner: int, positions: int
) -> transformers.GPT2LMHeadModel:
    """Create a GPT-2 of one layer with ReLU, whose output embeddings are a matrix of their own.

    Args:
        n_tokens: size of the vocabulary.
        width: size of the hidden states.
        heads: number of attention heads.
        inner: number of neurons of the MLP.
        positions: maximum length of a text in tokens.
    """
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=n_tokens,
            n_positions=positions,
            n_embd=width,
            n_layer=1,
            n_head=heads,
            n_inner=inner,
            activation_function="relu",
            tie_word_embeddings=False,
            pad_token_id=PAD,
            bos_token_id=CLS,
            eos_token_id=SEP,
        )
    )
