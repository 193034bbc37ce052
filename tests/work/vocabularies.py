"""Tokenizers of the kinds that real models have, trained on a few sentences."""

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

SENTENCES = [
    "The man works as a nurse.", "The woman, a doctor, is here.", "the man is there.",
    "A quick schoolgirl said that her grandmother was tired.", "Ms Marple saw the river.",
]  # fmt: skip


def byte_level(lm, *, prefix=False):
    """The model with a byte-level BPE in the manner of RoBERTa: offsets without spaces."""
    subset = tokenizers.Tokenizer(models.BPE())
    subset.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    subset.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>", "<pad>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    subset.train_from_iterator(SENTENCES, trainer)
    subset.post_processor = processors.RobertaProcessing(
        ("</s>", 1), ("<s>", 0), trim_offsets=True, add_prefix_space=prefix
    )
    fast = type(lm.tokens.tokenizer)(
        tokenizer_object=subset,
        **{"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"},
        **{"pad_token": "<pad>", "mask_token": "<mask>"},
    )
    object.__setattr__(lm.tokens, "tokenizer", fast)
    return lm
