"""How we look inside: the only door to transformers.

`load` gives an `LM`: a pretrained model with its tokenizer and its edits. An edited model is still
a model; edits act through hooks that live for one forward, and the weights never change.
"""
