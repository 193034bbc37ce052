"""Exported models in the runtimes that load them, compared with the hooked model.

`python tests/work/exports.py --csv FILE` writes the table of formats in the documents.
"""

import argparse
import csv
import sys
import tempfile
from pathlib import Path

import shifts
import torch
import transformers
import zoo

from levelhead.core.errors import LevelheadError
from levelhead.models.edits.base import HeadScale, Projection
from levelhead.models.edits.erasure import Erasure
from levelhead.models.export.torch_module import copy_with_hooks
from levelhead.models.export.traced import list_inputs
from levelhead.models.loading.load import load
from levelhead.models.sites import Site

TEXTS = ["the nurse works as a doctor .", "a man"]
LOADERS = {
    "transformers": "transformers",
    "peft": "PEFT",
    "torch": "torch.export.load",
    "onnx": "onnxruntime",
}
GRAPH_EDITS = ("masked heads", "conditional shift")
"""An edit that is merged into the weights of a graph, and one that stays a hook in it."""
MODELS = {
    "bert": "BertForSequenceClassification",
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
}


def make_edits(lm):
    """An edit of every kind, at sites that every format can hold where any can."""
    mlp, width = Site("mlp_out", 1), lm.layout.site_width(Site("mlp_out", 1))
    right = torch.linalg.qr(shifts.draw_sample(width, 2)).Q.T
    left = right + 0.1 * shifts.draw_sample(2, width, seed=1)
    left = torch.linalg.solve((right @ left.T).T, left)
    mean = shifts.draw_sample(width, seed=2)
    return {
        "masked heads": [HeadScale([Site("head_out", 1, 0), Site("head_out", 2, 3)], 0)],
        "projection": [Projection(mlp, right)],
        "LEACE": [Erasure(mlp, left=left, right=right, mean=mean)],
        "shift": [shifts.shift(lm, mlp)],
        "conditional shift": [shifts.conditional_shift(lm, mlp)],
    }


def encode(lm, texts=TEXTS):
    """The inputs of a model's graph."""
    encoded = lm.tokens.tokenizer(list(texts), padding=True, return_tensors="pt")
    return {name: encoded[name] for name in list_inputs(lm)}


def run_hooked(lm, inputs):
    """The scores of the edited model with hooks."""
    model = copy_with_hooks(lm) if lm.edits else lm.layout.model
    with torch.no_grad():
        return model(**inputs).logits


def load_peft(lm, folder):
    """The base with the adapter."""
    from peft import PeftModel

    return PeftModel.from_pretrained(_load_base(lm, lm.identity.checkpoint.folder), folder).eval()


def run_exported(lm, folder, file_format, inputs):
    """The scores that the format's own runtime gives."""
    if file_format == "onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
        feeds = {name: tensor.numpy() for name, tensor in inputs.items()}
        return torch.from_numpy(session.run(["logits"], feeds)[0])
    with torch.no_grad():
        if file_format == "torch":
            return torch.export.load(folder / "model.pt2").module()(*inputs.values())[0]
        if file_format == "peft":
            return load_peft(lm, folder)(**inputs).logits
        return _load_base(lm, folder)(**inputs).logits


def max_difference(lm, file_format, inputs):
    """The largest difference of a score between the exported and the hooked model."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "model")
        lm.save_pretrained(folder, file_format=file_format)
        difference = run_exported(lm, folder, file_format, inputs) - run_hooked(lm, inputs)
    return float(difference.abs().max())


def _load_base(lm, folder):
    return getattr(transformers, type(lm.layout.model).__name__).from_pretrained(folder).eval()


def main():
    """Write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--csv", type=Path, required=True)
    path = parser.parse_args().csv
    rows = []
    for family, model_class in MODELS.items():
        lm = load(zoo.folder(family, model_class))
        for name, edits in make_edits(lm).items():
            edited, inputs = lm.edited(*edits), encode(lm)
            effect = float((run_hooked(edited, inputs) - run_hooked(lm, inputs)).abs().max())
            for file_format, loader in LOADERS.items():
                # A graph of merged weights is the same for every edit, and compiles for seconds.
                if file_format in ("torch", "onnx") and name not in GRAPH_EDITS:
                    continue
                row = {"model": family, "edit": name, "format": file_format, "loaded by": loader}
                try:
                    difference = f"{max_difference(edited, file_format, inputs):.1e}"
                except LevelheadError as error:
                    difference = "refused: " + str(error.args[0]).partition(": ")[2]
                row |= {"effect of the edit": f"{effect:.2g}", "max difference": difference}
                sys.stderr.write(f"{row}\n")
                rows.append(row)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
