"""Pairs of sentences in the words of the tiny models, and tiny models of several families."""

import functools

import zoo

from levelhead.data.counterfactuals.contrast_pairs import ContrastPair
from levelhead.models.loading.load import load

WORDS = (("she", "he"), ("woman", "man"), ("nurse", "doctor"), ("river", "house"))
MORE = (("quick", "lazy"), ("here", "there"), ("tired", "quick"))
"""To be resampled; no pairs of a group."""
FRAMES = ("{} was here .", "that is {} .", "there {} said that .", "a {} is quick and tired .")

MODELS = {
    "bert": "BertForPreTraining",
    "roberta": "RobertaForSequenceClassification",
    "distilbert": "DistilBertForSequenceClassification",
    "albert": "AlbertForSequenceClassification",
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
}


@functools.cache
def lm(family, model_class=None, **changes):
    return load(zoo.folder(family, model_class or MODELS[family], **changes))


def texts(words=WORDS):
    """Every pair of words in every frame."""
    result = []
    for first, second in words:
        for frame in FRAMES:
            start = frame.index("{}")
            spans = ((start, start + len(first)), (start, start + len(second)))
            unit = f"{first}/{second}"
            single, other = frame.format(first), frame.format(second)
            result.append(ContrastPair(f"{unit}: {frame}", single, other, spans, unit))
    return tuple(result)
