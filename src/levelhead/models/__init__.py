"""Models: loading, reading and editing. The only package that calls transformers.

`load` returns an `LM`: a pretrained model with its tokenizer and its edits. An edited model is an
`LM` as well; edits act through hooks that exist for one forward pass, and the weights never change.
"""
