"""Parsers of untrusted bytes: each gives a value or an error of ours, whatever it is fed.

The fast tier tries a few changes of a valid file for each parser, the full tier as many as fit into
its seconds.
"""

import hashlib
import json
import shutil
import struct
import time
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
import zoo
from biased_classifier import TOML
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from maps import measurement

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.data.corpus.reader import read_texts, split_corpus
from levelhead.data.lexicons.lexicon import parse_lexicon
from levelhead.data.user_files import read_user_texts
from levelhead.models.edits.base import HeadScale
from levelhead.models.edits.files import load_edits, save_edits
from levelhead.models.loading.checkpoints import Checkpoint
from levelhead.models.loading.gguf_header import check_header
from levelhead.models.serving.client import ServerClient
from levelhead.models.serving.generation import GenerationPrompt, read_generated
from levelhead.models.serving.llama_cpp import LlamaCppServer, _Targets
from levelhead.models.sites import Site
from levelhead.report.gate.policy import read_policy
from levelhead.study.config import read_study_config
from levelhead.study.results_dir import parse_result

SECONDS = {"fast": 0.1, "full": 8.0}
"""Time of each of 17 parsers: 2 seconds and 2 minutes in all."""
LEAST = 10
"""Files that are tried, however slow the machine is."""
TOKENS = [
    *(
        b"[" * 900,
        b'{"a":' * 900,
        b"[" * 3_000,
        b"{" * 3_000,
        b'"',
        b"\\",
        b"\\ud800",
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\r",
    ),
    *(b"NaN", b"1e999", b"-1", b"9" * 5_000, b"true", b"null", b"[]", b"{}", b"''", b"=", b"."),
    *(struct.pack("<Q", 2**63), struct.pack("<Q", 2**32), struct.pack("<i", -1), b"\xff" * 8),
]


@st.composite
def changes(draw):
    """Changes of bytes: where, as a share of the length; how many go; what comes."""
    token = st.one_of(st.sampled_from(TOKENS), st.binary(max_size=8))
    change = st.tuples(st.floats(0, 1), st.sampled_from([0, 0, 1, 1, 2, 8, 40]), token)
    return draw(st.lists(change, min_size=1, max_size=4))


def changed(seed, edits):
    """The bytes after some changes."""
    for place, gone, token in edits:
        at = round(place * len(seed))
        seed = seed[:at] + token + seed[at + gone :]
    return seed


# -- parsers: a valid file, and what reads one from bytes


def by_file(name, read):
    """A parser of paths, fed with bytes."""

    def parse(data, folder):
        (folder / name).write_bytes(data)
        read(folder / name)

    return parse


def study_text():
    return (Path(__file__).parents[1] / "golden" / "every_kind.toml").read_bytes()


POLICY = b'format = "levelhead-gate-2"\n[[rule]]\nmeasure = "seat"\nat_most = 1.0\npurpose = "x"\n'
CSV = b'text,label\n"a ""b"", c",yes\nd,no\n'
JSONL = b'{"text": "a b", "label": "yes"}\n{"text": "c\\u00e9", "label": 1}\n'


def edits_seed(folder):
    save_edits([HeadScale([Site("head_out", 1, 1)], 0.5)], folder / "edit")
    return (folder / "edit" / "edits.json").read_bytes()


def parse_edits(data, folder):
    (folder / "edit" / "edits.json").write_bytes(data)
    load_edits(folder / "edit")


def parse_edit_contents(data, folder):
    """With the hash that belongs to the contents: anyone can compute it."""
    try:
        contents = json.loads(data)["contents"]
        document = {"contents": contents, "sha256": content_hash(contents)}
    except (ValueError, KeyError, TypeError, RecursionError, LevelheadError):
        return
    (folder / "edit" / "edits.json").write_text(json.dumps(document))
    load_edits(folder / "edit")


def tensors_seed(folder):
    edits_seed(folder)
    header = b'{"0.a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    return struct.pack("<Q", len(header)) + header + b"\0" * 8


def parse_tensors(data, folder):
    (folder / "edit" / "edits.safetensors").write_bytes(data)
    document = json.loads((folder / "edit" / "edits.json").read_text())
    document["contents"]["tensors_sha256"] = hashlib.sha256(data).hexdigest()
    document["sha256"] = content_hash(document["contents"])
    (folder / "edit" / "edits.json").write_text(json.dumps(document))
    load_edits(folder / "edit")


def checkpoint_seed(folder):
    shutil.copytree(zoo.folder("bert", "BertForPreTraining"), folder / "model")
    # The header alone is changed; the numbers behind it stay.
    data = (folder / "model" / "model.safetensors").read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    (folder / "numbers").write_bytes(data[end:])
    return data[:end]


def parse_checkpoint(data, folder):
    numbers = (folder / "numbers").read_bytes()
    (folder / "model" / "model.safetensors").write_bytes(data + numbers)
    Checkpoint.inspect(folder / "model")


def config_seed(folder):
    shutil.copytree(zoo.folder("bert", "BertForPreTraining"), folder / "model")
    return (folder / "model" / "config.json").read_bytes()


def parse_config(data, folder):
    (folder / "model" / "config.json").write_bytes(data)
    checkpoint = Checkpoint.inspect(folder / "model")
    # A type that is no architecture is an error, too.
    assert isinstance(checkpoint.candidates, list)


def gguf_seed(folder):
    def text(value):
        return struct.pack("<Q", len(value)) + value

    return (
        b"GGUF"
        + struct.pack("<IQQ", 3, 1, 4)
        + text(b"general.architecture") + struct.pack("<I", 8) + text(b"llama")
        + text(b"llama.block_count") + struct.pack("<II", 4, 1)
        + text(b"tokens") + struct.pack("<IIQ", 9, 8, 2) + text(b"a") + text(b"b")
        + text(b"scores") + struct.pack("<IIQ", 9, 6, 2) + b"\0" * 8
        + text(b"token_embd") + struct.pack("<IQQIQ", 2, 4, 4, 0, 0)
        + b"\0" * 64
    )  # fmt: skip


def parse_gguf(data, folder):
    """What passes the check must keep the parser behind it busy for a moment only."""
    from gguf import GGUFReader

    (folder / "x.gguf").write_bytes(data)
    check_header(folder / "x.gguf")
    began = time.monotonic()
    # Errors of this parser are wrapped where it is called.
    with suppress(Exception):
        GGUFReader(folder / "x.gguf")
    assert time.monotonic() - began < 5


class Answers:
    """A client whose answers are given: bytes, as a server sends them."""

    root = "http://127.0.0.1"

    def __init__(self, data):
        self.data = data

    def post(self, path, body, *, counts=None):
        reader = object.__new__(ServerClient)
        reader._key = None
        return reader._parse(self.root + path, self.data)


COMPLETION = json.dumps(
    {
        "model": "m",
        "choices": [
            {
                "index": 0,
                "text": "a",
                "finish_reason": "stop",
                "logprobs": {"content": [{"top_logprobs": [{"id": 3, "logprob": -1.5}]}]},
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    }
).encode()


def parse_completion(data, folder):
    server = LlamaCppServer(Answers(data), "", {})
    (choice,) = server.request_choices([(1, 2)])
    server._read_next(choice, _Targets({3}, 1))


def parse_generated(data, folder):
    text = read_generated(Answers(data).post("/", {}), GenerationPrompt(text="x"), "server")
    assert isinstance(text.text, str)


def parse_tokens(data, folder):
    server = LlamaCppServer(Answers(data), "", {})
    assert all(type(token) is int for token in server.tokenize("a", add_special=True))


def parse_lines(data, folder):
    (folder / "a.jsonl").write_bytes(data)
    for piece in split_corpus([folder / "a.jsonl"]):
        for text in read_texts(piece):
            text.encode()


PARSERS = {
    "study": (lambda folder: study_text(), by_file("s.toml", read_study_config)),
    "study in JSON": (lambda folder: b'{"format": "x", "name": "a"}',
                      by_file("s.json", read_study_config)),
    "policy": (lambda folder: POLICY, by_file("p.toml", read_policy)),
    "lexicon": (lambda folder: TOML.encode(), lambda data, folder: parse_lexicon(data, "x")),
    "edit folder": (edits_seed, parse_edits),
    "edit with its hash": (edits_seed, parse_edit_contents),
    "edit tensors": (tensors_seed, parse_tensors),
    "result": (lambda folder: measurement(1.0).to_json().encode(),
               lambda data, folder: parse_result("cell.a.b.c", data, "x")),
    "CSV": (lambda folder: CSV,
            by_file("a.csv", lambda path: read_user_texts(str(path), "text", "label"))),
    "JSON lines": (lambda folder: JSONL,
                   by_file("a.jsonl", lambda path: read_user_texts(str(path), "text", "label"))),
    "corpus": (lambda folder: JSONL, parse_lines),
    "safetensors header": (checkpoint_seed, parse_checkpoint),
    "config.json": (config_seed, parse_config),
    "GGUF header": (gguf_seed, parse_gguf),
    "completion": (lambda folder: COMPLETION, parse_completion),
    "generated text": (lambda folder: COMPLETION, parse_generated),
    "tokens": (lambda folder: b'{"tokens": [1, 2, 3]}', parse_tokens),
}  # fmt: skip


def fuzz(name, folder, seconds):
    """Feed changed files to a parser until the time is over; the number of files."""
    make_seed, parse = PARSERS[name]
    valid, count = make_seed(folder), 0
    with suppress(LevelheadError) if name in REFUSED_SEEDS else nullcontext():
        parse(valid, folder)
    # From here: the first call imports.
    end = time.monotonic() + seconds

    @settings(
        max_examples=25 if seconds < 1 else 200,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(changes())
    def feed(edits):
        nonlocal count
        # Hypothesis has a number of examples, not of seconds.
        if time.monotonic() > end and count >= LEAST:
            return
        count += 1
        with suppress(LevelheadError):
            parse(changed(valid, edits), folder)

    rounds = 0
    while not rounds or time.monotonic() < end:
        seed(rounds)(feed)()
        rounds += 1
    return count


REFUSED_SEEDS = ("study", "study in JSON", "edit tensors")
"""Files whose references lead nowhere here: they are refused after they were read."""


@pytest.mark.parametrize("name", PARSERS)
def test_any_change_gives_a_value_or_an_error(name, tmp_path):
    assert fuzz(name, tmp_path, SECONDS["fast"]) >= LEAST


# 8 seconds for each of the parsers: 2 minutes.
@pytest.mark.full
@pytest.mark.parametrize("name", PARSERS)
def test_many_changes_give_a_value_or_an_error(name, tmp_path, record_property):
    count = fuzz(name, tmp_path, SECONDS["full"])
    record_property("files", count)
    print(f"{name}: {count} files")  # noqa: T201
    assert count > 100
