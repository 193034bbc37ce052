"""Trace an edited model: one graph with the edit inside, for torch.export and for ONNX."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any

import torch

from levelhead.core.errors import MissingExtraError
from levelhead.models.export.torch_module import to_torch_module
from levelhead.models.loading.quiet import quiet

if TYPE_CHECKING:
    from pathlib import Path

    from torch.export import ExportedProgram

    from levelhead.models.editable_model import EditableModel

PROGRAM_FILE, ONNX_FILE = "model.pt2", "model.onnx"
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""Inputs of a graph, if the model has them: those that tokenizers return."""
_USAGE = """\
`{file}` is the edited model as one graph, which runs without transformers and levelhead. Inputs are
integers, [texts, tokens], of two tokens or more.{data_note}

```python
{code}
```"""
_PROGRAM_CODE = """\
import torch

model = torch.export.load("{file}").module()
outputs = model({inputs})"""
_ONNX_CODE = """\
import onnxruntime

session = onnxruntime.InferenceSession("{file}")
outputs = session.run(None, {{{feeds}}})"""
_ONNX_DATA_NOTE = " The weights are in the file next to it: keep both together."


class _TracedModel(torch.nn.Module):
    """A model whose inputs and outputs are tensors in a fixed order."""

    def __init__(self, model: torch.nn.Module, inputs: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.inputs = inputs

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.run(tensors).values())

    def run(self, tensors: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        """Return the outputs that are tensors, by name; a cache of keys and values is none."""
        output: Any = self.model(**dict(zip(self.inputs, tensors, strict=True)), use_cache=False)
        return {name: value for name, value in output.items() if isinstance(value, torch.Tensor)}


def list_inputs(lm: EditableModel) -> tuple[str, ...]:
    """List the inputs of a model's graph."""
    parameters = inspect.signature(lm.layout.model.forward).parameters
    tokenizer_inputs = lm.tokens.tokenizer.model_input_names
    return tuple(name for name in INPUTS if name in parameters and name in tokenizer_inputs)


def trace(lm: EditableModel) -> tuple[ExportedProgram, tuple[str, ...]]:
    """Return an edited model as a graph of any number of texts and tokens, and its outputs' names.

    Raises:
        LevelheadError: The edit acts on the first token while a decoder generates.
    """
    inputs = list_inputs(lm)
    model = _TracedModel(to_torch_module(lm), inputs).eval()
    # Two texts of three tokens: a size of 1 would be traced as a constant.
    ids = torch.zeros(2, 3, dtype=torch.long)
    example = tuple(ids if name == "input_ids" else torch.ones_like(ids) for name in inputs)
    # DYNAMIC is an error where a size becomes a constant, and allows the model's longest text.
    shapes = (tuple(dict.fromkeys((0, 1), torch.export.Dim.DYNAMIC) for _ in inputs),)
    with torch.no_grad(), quiet():
        names = tuple(model.run(example))
        program = torch.export.export(model, example, dynamic_shapes=shapes, strict=False)
    return program, names


def write_program(lm: EditableModel, folder: Path) -> None:
    """Write the graph for `torch.export.load`."""
    program, _ = trace(lm)
    torch.export.save(program, folder / PROGRAM_FILE)


def write_onnx(lm: EditableModel, folder: Path) -> None:
    """Write the graph as ONNX."""
    try:
        import onnxscript  # noqa: F401  # torch imports it much later, with a less clear error
    except ImportError:
        raise MissingExtraError("writing ONNX", "onnx") from None
    program, outputs = trace(lm)
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    # It reports operators of packages that are not installed, which no language model has.
    logger.setLevel(logging.ERROR)
    try:
        torch.onnx.export(
            program,
            f=folder / ONNX_FILE,
            dynamo=True,
            input_names=list_inputs(lm),
            output_names=outputs,
            verbose=False,
        )
    finally:
        logger.setLevel(level)


def describe_graph(lm: EditableModel, file_format: str) -> str:
    """Return the section of the README that says how to run the graph."""
    inputs = list_inputs(lm)
    if file_format == "onnx":
        feeds = ", ".join(f'"{name}": {name}' for name in inputs)
        code = _ONNX_CODE.format(file=ONNX_FILE, feeds=feeds)
        return _USAGE.format(file=ONNX_FILE, data_note=_ONNX_DATA_NOTE, code=code)
    code = _PROGRAM_CODE.format(file=PROGRAM_FILE, inputs=", ".join(inputs))
    return _USAGE.format(file=PROGRAM_FILE, data_note="", code=code)
