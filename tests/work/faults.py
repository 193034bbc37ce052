"""Checkpoints with one fault each, made from a sound one, and what a command says of them."""

import json
import shutil

from biased_classifier import TOML, checkpoint, texts, write
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from levelhead.cli import app
from levelhead.cli.shared.exit_codes import ExitWithCode
from levelhead.core.errors import LevelheadError
from levelhead.core.results import Measurement
from levelhead.core.verdicts import decide_measure_verdict

LAYER = "bert.encoder.layer.2."
WEIGHTS = "model.safetensors"
EXIT = {0: "done", 1: "fail", 2: "inconclusive", 3: "error"}
QUICK = ("--resamples", "99", "--permutations", "99")


def change_weights(folder, change):
    """Change the weights of a checkpoint by a function of name and tensor."""
    path = folder / WEIGHTS
    weights = {name: change(name, value.clone()) for name, value in load_file(path).items()}
    save_file(weights, path, metadata={"format": "pt"})


def change_json(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def fill(part, number):
    """A function that fills the weights whose names hold a text, or their first number."""

    def change(name, value):
        if part in name:
            value.view(-1)[: None if number == 0 else 1] = number
        return value

    return lambda folder: change_weights(folder, change)


def overflow(folder):
    """Finite weights whose products are not."""
    change_weights(
        folder,
        lambda name, value: value * 1e38 if name.startswith(f"{LAYER}output.dense.") else value,
    )


def rotate_vocabulary(folder):
    """The tokenizer of a model with the same words in another order."""
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    words = content["model"]["vocab"]
    ids = sorted(words.values())
    special = {token["id"] for token in content["added_tokens"]}
    free = [i for i in ids if i not in special]
    turned = dict(zip(free, free[7:] + free[:7], strict=True))
    content["model"]["vocab"] = {word: turned.get(i, i) for word, i in words.items()}
    path.write_text(json.dumps(content))


def enlarge_vocabulary(folder):
    """The tokenizer of a model with more words."""
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    words = content["model"]["vocab"]
    content["model"]["vocab"] = {
        word: i if word.startswith("[") else i + 500 for word, i in words.items()
    }
    path.write_text(json.dumps(content))


def reverse_labels(folder):
    names = json.loads((folder / "config.json").read_text())["id2label"]
    turned = dict(zip(names, reversed(names.values()), strict=True))
    change_json(
        folder / "config.json",
        id2label=turned,
        label2id={name: int(i) for i, name in turned.items()},
    )


def cut(folder):
    path = folder / WEIGHTS
    path.write_bytes(path.read_bytes()[:-64])


def to_half(folder):
    change_weights(folder, lambda name, value: value.half() if value.is_floating_point() else value)
    change_json(folder / "config.json", dtype="float16")


MODEL_FAULTS = {
    "NaN in a layer": fill(f"{LAYER}attention.self.query.weight", float("nan")),
    "infinity in a layer": fill(f"{LAYER}output.dense.weight", float("inf")),
    "overflow in a layer": overflow,
    "all heads zeroed": fill("attention.self.value", 0),
    "constant logits": fill("classifier.weight", 0),
    "a pooler of zeros": fill("pooler.dense", 0),
    "a swapped tokenizer": rotate_vocabulary,
    "a tokenizer of more words": enlarge_vocabulary,
    "reversed labels": reverse_labels,
    "truncated weights": cut,
}
"""Faults of a classifier that treats groups alike; without them, its verdict is `not shown`."""


def broken(folder, fault, *, lean=0.0):
    """A classifier with a fault."""
    path = shutil.copytree(checkpoint(lean), folder)
    MODEL_FAULTS[fault](path)
    return path


def user_data(folder, count=60):
    """A table of texts and a lexicon, as options of commands."""
    (folder / "own.toml").write_text(TOML)
    write(folder / "texts.csv", texts("dev", count))
    return folder


def measure_words(model, data, store, *more):
    """`levelhead measure` of a classifier on the user's texts."""
    return [
        *("measure", model, "-m", "counterfactual", "--data", data / "texts.csv"),
        *("--text", "text", "--label", "label", "--lexicon", data / "own.toml"),
        *("--store", store, "--json", "--quiet", *QUICK, *more),
    ]


def invoke(*words):
    """Run a command; an error that is no error of ours is raised, as a user would see it."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    known = LevelheadError | ExitWithCode | SystemExit
    if result.exception is not None and not isinstance(result.exception, known):
        raise result.exception
    return result


def outcome(result):
    """The outcome of a command in a word: an error, an exit code, or the verdicts that it gives."""
    if isinstance(result.exception, LevelheadError):
        assert result.exception.hint
        return "error"
    if isinstance(result.exception, ExitWithCode):
        return EXIT[result.exception.code]
    assert result.exit_code == 0, result.output
    return "done"


def statuses(result):
    """The verdicts of `measure --json`; of an error, `error`."""
    if (word := outcome(result)) != "done":
        return {word}
    rows = json.loads(result.stdout)["measurements"]
    return {decide_measure_verdict(Measurement.from_json(json.dumps(row))).status for row in rows}
