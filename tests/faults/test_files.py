"""Hostile files: nothing in them is run, none keeps levelhead busy, and each is a clear error."""

import hashlib
import io
import json
import os
import shutil
import struct
import time
from contextlib import suppress

import numpy as np
import polars
import pytest
import zoo
from faults import change_json
from metric_cases import FAST, made, model

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError
from levelhead.core.files import open_filesystem, read_bytes
from levelhead.core.run_context import RunContext
from levelhead.data.corpus.reader import read_texts, split_corpus
from levelhead.data.lexicons.lexicon import lexicon
from levelhead.data.user_files import read_user_texts
from levelhead.engine.store import open_store
from levelhead.models.edits.base import HeadScale
from levelhead.models.edits.files import InvalidEditFileError, load_edits, save_edits
from levelhead.models.generation.config import GenerationConfig
from levelhead.models.inputs import chat_template
from levelhead.models.inputs.chat import ChatFormat
from levelhead.models.loading.gguf_header import check_header
from levelhead.models.loading.load import load
from levelhead.models.sites import Site
from levelhead.report.gate.policy import read_policy
from levelhead.report.study_page import read_paper_tables
from levelhead.study.config import read_study_config
from levelhead.study.results_dir import load_results


class Payload:
    """What a pickle runs when it is read."""

    def __init__(self, flag):
        self.flag = str(flag)

    def __reduce__(self):
        return os.mkdir, (self.flag,)


# -- weights


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(zoo.folder("bert", "BertForPreTraining"), tmp_path / "model")


def safetensors(header, data=b"\0" * 16, *, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


TENSOR = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
SAFETENSORS = {
    "a header of 2^63 bytes": safetensors({"a": TENSOR}, length=2**63),
    "a header of 200 MB": safetensors({"a": TENSOR}, length=200 << 20),
    "a header longer than the file": safetensors({"a": TENSOR}, length=10_000),
    "a header of no JSON": safetensors(b"[" * 10_000),
    "a header that nests": safetensors(b'{"a":' * 100_000),
    "offsets behind the end": safetensors({"a": TENSOR | {"data_offsets": [0, 1 << 40]}}),
    "offsets that go back": safetensors({"a": TENSOR | {"data_offsets": [16, 0]}}),
    "offsets that overlap": safetensors({"a": TENSOR, "b": TENSOR}),
    "a shape that is too large": safetensors({"a": TENSOR | {"shape": [1 << 62, 1 << 62]}}),
    "a negative shape": safetensors({"a": TENSOR | {"shape": [-4]}}),
    "an unknown type": safetensors({"a": TENSOR | {"dtype": "X9"}}),
    "a length of zero": b"\0" * 8,
    "seven bytes": b"\0" * 7,
}


@pytest.mark.parametrize("fault", SAFETENSORS)
def test_safetensors(fault, folder):
    (folder / "model.safetensors").write_bytes(SAFETENSORS[fault])
    with pytest.raises(LevelheadError, match=r"damaged|lacks weights|holds no"):
        load(folder)


@pytest.mark.parametrize(
    ("name", "count"),
    [("num_hidden_layers", 10**9), ("num_hidden_layers", 1e300), ("num_labels", 10**9)],
)
def test_a_config_of_a_billion_parts_is_refused_at_once(name, count, folder):
    change_json(folder / "config.json", **{name: count})
    began = time.monotonic()
    with pytest.raises(LevelheadError, match=f"config.json says {name}"):
        load(folder)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b'{"model": 3}', b"[" * 50_000, b"\xff\xfe", b'{"version":"1.0"}'],
)
def test_a_tokenizer_that_is_none(content, folder):
    (folder / "tokenizer.json").write_bytes(content)
    with pytest.raises(LevelheadError, match="token") as error:
        load(folder)
    assert error.value.hint


# -- GGUF


def gguf(*parts, version=3, tensors=0, keys=1, magic=b"GGUF"):
    return magic + struct.pack("<IQQ", version, tensors, keys) + b"".join(parts)


def text(value, *, length=None):
    return struct.pack("<Q", len(value) if length is None else length) + value


def number(value):
    return text(b"llama.block_count") + struct.pack("<II", 4, value)


def array(kind, length):
    return text(b"a") + struct.pack("<IIQ", 9, kind, length)


GGUF = {
    "no magic": gguf(magic=b"GGUX"),
    "an old version": gguf(version=1),
    "a billion keys": gguf(keys=10**9),
    "a billion tensors": gguf(number(0), tensors=2**62),
    "a key longer than the file": gguf(text(b"a", length=2**60)),
    "a text longer than the file": gguf(
        text(b"a") + struct.pack("<I", 8) + text(b"", length=2**63)
    ),
    "an array of 2^60 numbers": gguf(array(0, 2**60)),
    "an array of 2^60 texts": gguf(array(8, 2**60)),
    "an array of arrays": gguf(array(9, 1)),
    "an unknown type": gguf(text(b"a") + struct.pack("<I", 77)),
    "a billion layers": gguf(number(10**9)),
    "a tensor of many dimensions": gguf(text(b"t") + struct.pack("<I", 2**31), tensors=1, keys=0),
    "a tensor behind the end": gguf(
        text(b"t") + struct.pack("<IQIQ", 1, 4, 0, 2**50), tensors=1, keys=0
    ),
    "an end in the header": gguf()[:-4],
    "empty": b"",
}


@pytest.mark.parametrize("fault", GGUF)
def test_gguf(fault, tmp_path, monkeypatch):
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "model.gguf"
    path.write_bytes(GGUF[fault])
    began = time.monotonic()
    with pytest.raises(LevelheadError, match="cannot read this GGUF file"):
        check_header(path)
    assert time.monotonic() - began < 1
    with pytest.raises(LevelheadError, match="cannot read this GGUF file"):
        load(path)


# -- chat templates


@pytest.fixture(scope="module")
def chat_model():
    return load(zoo.folder("llama", "LlamaForCausalLM"))


def rendered(lm, template):
    lm.tokens.tokenizer.chat_template = template
    return ChatFormat("chat").format_request(lm.tokens, "who is here")


ESCAPES = (
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.__class__.__base__ }}",
    "{{ cycler.__init__.__globals__.os.mkdir('FLAG') }}",
    "{{ lipsum.__globals__['os'].mkdir('FLAG') }}",
    "{{ joiner.__init__.__globals__['os'].mkdir('FLAG') }}",
    "{{ namespace.__init__.__globals__.os.mkdir('FLAG') }}",
    "{{ raise_exception.__globals__['json'].codecs.builtins.open('FLAG', 'w') }}",
    "{{ strftime_now.__globals__ }}",
    "{{ self._TemplateReference__context.cycler.__init__.__globals__.os.mkdir('FLAG') }}",
    "{{ ''|attr('__class__')|attr('__mro__') }}",
    "{{ '{0.__class__.__init__.__globals__}'.format(messages) }}",
    "{{ '%s'|format(messages.__init__.__globals__) }}",
    "{% set f = '{0.__class__}'.format %}{{ f(cycler) }}",
    "{% include '/etc/passwd' %}",
    "{% import '/etc/passwd' as x %}",
    "{% extends '/etc/passwd' %}",
    "{{ messages.append(3) }}",
    "{{ messages[0].update({'role': 'system'}) }}",
    "{{ [].__reduce_ex__(2) }}",
    "{{ (''|escape).__class__.__init__.__globals__ }}",
    "{{ ''.join.__self__.__class__ }}",
    "{% for x in ().__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}",
)


@pytest.mark.parametrize("template", ESCAPES)
def test_a_template_does_not_leave_its_sandbox(template, chat_model, tmp_path):
    flag = tmp_path / "flag"
    output = ""
    # Some are refused, others give an empty text.
    with suppress(LevelheadError):
        output = rendered(chat_model, template.replace("FLAG", str(flag)))
    assert not flag.exists()
    for leaked in ("<class", "<function", "root:", "builtin", "<module"):
        assert leaked not in output


LOOP = "{% for a in range(9999) %}" * 4 + "x" + "{% endfor %}" * 4
QUIET_LOOP = "{% for a in range(9999) %}" * 4 + "{% endfor %}" * 4
DOUBLING = (
    "{% set ns = namespace(t='x' * 1000000) %}"
    "{% for i in range(9) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}{{ ns.t[:3] }}"
)
RECURSION = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"


@pytest.mark.parametrize(
    ("template", "limits", "message"),
    [
        (LOOP, {"MAX_SECONDS": 0.3}, "does not end within 0.3 s"),
        (QUIET_LOOP, {"MAX_SECONDS": 0.3}, "does not end within 0.3 s"),
        (DOUBLING, {"MAX_MEMORY_BYTES": 1 << 24}, "does not end within"),
        ("{{ 'x' * 3000000 }}", {}, "writes 3000000 characters"),
        (RECURSION, {}, "chat template fails"),
        ("{{ range(10**9)|list }}", {}, "chat template fails"),
        ("{{ undefined.what }}", {}, "chat template fails"),
        ("{% if %}", {}, "chat template fails"),
        ("{{ raise_exception('\x1b[2Jno') }}", {}, "chat template fails"),
    ],
)
def test_a_template_has_limits(template, limits, message, chat_model, monkeypatch):
    for name, value in limits.items():
        monkeypatch.setattr(chat_template, name, value)
    began = time.monotonic()
    with pytest.raises(LevelheadError, match=message):
        rendered(chat_model, template)
    assert time.monotonic() - began < 10
    # Nothing of the interruption is left for whatever runs next.
    assert sum(range(100_000)) == 4_999_950_000
    assert rendered(chat_model, "{{ messages[0]['content'] }}") == "who is here"


# -- edits


@pytest.fixture
def edit(tmp_path):
    save_edits([HeadScale([Site("head_out", 1, 1)], 0)], tmp_path / "edit")
    return tmp_path / "edit"


def rehashed(folder, change, tensors=None):
    """The edit folder after a change, with the hashes that an attacker would compute again."""
    document = json.loads((folder / "edits.json").read_text())
    contents = document["contents"]
    if tensors is not None:
        (folder / "edits.safetensors").write_bytes(tensors)
        contents["tensors_sha256"] = hashlib.sha256(tensors).hexdigest()
    change(contents)
    (folder / "edits.json").write_text(
        json.dumps({"sha256": content_hash(contents), "contents": contents})
    )


def set_entry(**changes):
    return lambda contents: contents["edits"][0].update(changes)


EDITS = {
    "tensors of an unknown type": (
        lambda contents: None,
        safetensors({"a": TENSOR | {"dtype": "F4"}}),
    ),
    "tensors of no safetensors": (lambda contents: None, b"\x80\x04K\x01."),
    "a head that does not exist": (set_entry(at=[["head_out", 1, -5]]), None),
    "a stream that does not exist": (set_entry(at=[["evil", 1, 1]]), None),
    "a kind that does not exist": (set_entry(kind="os.system"), None),
    "a setting too many": (set_entry(settings={"factor": 0.0, "sites": "x"}), None),
    "a factor of text": (set_entry(settings={"factor": "import os"}), None),
    "a tensor as a setting": (set_entry(tensors=["factor"]), None),
    "a huge layer": (set_entry(at=[["head_out", 10**30, 1]]), None),
}


@pytest.mark.parametrize("fault", EDITS)
def test_edit_folders(fault, edit):
    change, tensors = EDITS[fault]
    rehashed(edit, change, tensors)
    with pytest.raises(LevelheadError) as error:
        load(zoo.folder("bert", "BertForPreTraining"), edit=str(edit))
    assert error.value.hint


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff", b"{}", b"[]", b"NaN", b"1e999"])
def test_edit_documents(content, edit):
    (edit / "edits.json").write_bytes(content)
    with pytest.raises(InvalidEditFileError):
        load_edits(edit)


def test_a_pickle_beside_an_edit_is_not_read(edit, tmp_path):
    import torch

    for name in ("edits.pt", "edits.bin", "pytorch_model.bin"):
        torch.save({"extra": Payload(tmp_path / "flag")}, edit / name)
    load(zoo.folder("bert", "BertForPreTraining"), edit=str(edit))
    assert not (tmp_path / "flag").exists()


def test_a_pickled_array_in_a_store_is_not_run(tmp_path):
    """Whoever writes to a store may change results; code is not run."""
    measure, lm = made("crows"), model("crows")
    measure(lm, inference=FAST, context=RunContext(store=tmp_path / "store"))
    store = open_store(tmp_path / "store")
    file = io.BytesIO()
    np.save(file, np.array([Payload(tmp_path / "flag")], dtype=object), allow_pickle=True)
    for key in store:
        store.put(key, store.get(key).partition(b"\n")[0] + b"\n" + file.getvalue())
    with pytest.raises((LevelheadError, ValueError), match=r"[Oo]bject array|pickle"):
        measure(lm, inference=FAST, context=RunContext(store=tmp_path / "store"))
    assert not (tmp_path / "flag").exists()


# -- TOML, JSON, tables


TOML = {
    "brackets without end": "a = " + "[" * 50_000,
    "a number of 5,000 digits": "a = " + "9" * 5_000,
    "a table that is a number": "format = 3\nmodels = 3",
    "a null byte": "a = '\0'",
    "half a surrogate pair": 'a = "\\ud800"',
    "dates": "format = 1979-05-27",
    "a bomb of dotted keys": "a" + ".a" * 20_000 + " = 1",
}
READERS = {
    "study": read_study_config,
    "policy": read_policy,
    "lexicon": lambda path: lexicon(str(path)),
    "printed tables": read_paper_tables,
}


@pytest.mark.parametrize("fault", TOML)
@pytest.mark.parametrize("reader", READERS)
def test_toml(reader, fault, tmp_path):
    path = tmp_path / "file.toml"
    path.write_text(TOML[fault])
    with pytest.raises(LevelheadError) as error:
        READERS[reader](path)
    assert error.value.hint


@pytest.mark.parametrize("content", ["[" * 100_000, "[1]", "3", "NaN", '{"format": NaN}', ""])
def test_a_study_in_json(content, tmp_path):
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(LevelheadError):
        read_study_config(tmp_path / "plan.json")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", b"[" * 100_000),
        ("a.jsonl", b'{"text": "\\ud800", "y": "a"}'),
        ("a.jsonl", b'{"text": NaN, "y": "a"}'),
        ("a.jsonl", b'{"text": "a", "y": NaN}'),
        ("a.jsonl", b'{"text": 1e999, "y": "a"}'),
        ("a.jsonl", b'{"text": ["a"], "y": "a"}'),
        ("a.csv", b"\x1f\x8b\x08" + b"\0" * 99),
        ("a.csv", b"text,y\n\xff,a\n"),
        ("a.csv", b'text,y\n"a'),
        ("a.csv", b""),
        ("a.csv.gz", b"\x1f\x8b"),
        ("a.zip", b"PK\x03\x04"),
        ("a.npy", b"\x93NUMPY"),
        ("a.pkl", b"\x80\x04K\x01."),
    ],
)
def test_data_of_users(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    rows = ()
    with suppress(LevelheadError):
        rows = read_user_texts(str(tmp_path / name), "text", "y")
    assert rows == ()


@pytest.mark.parametrize(
    "line", [b"[" * 100_000, b'{"text": "\\udfff"}', b'{"text": 3}', b'{"a": 3}', b"\xff", b"NaN"]
)
def test_lines_of_a_corpus(line, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "he works"}\n' + line + b"\n")
    (piece,) = split_corpus([tmp_path / "a.jsonl"])
    with pytest.raises(LevelheadError):
        read_texts(piece)


def test_a_parquet_file_of_a_few_bytes_and_many_texts(tmp_path, monkeypatch):
    """Two kilobytes hold 200 GB of text: refused before any of it is in memory."""
    text = polars.Series("text", ["x" * 1_000_000]).cast(polars.Categorical)
    path = tmp_path / "bomb.parquet"
    polars.DataFrame([text.new_from_index(0, 200_000)]).write_parquet(path)
    (piece,) = split_corpus([str(path)])
    assert path.stat().st_size < 10_000
    with pytest.raises(LevelheadError, match="hold 200,000,000,000 bytes of text") as error:
        read_texts(piece)
    assert "one document in a row" in error.value.hint
    polars.DataFrame([text.cast(polars.String)]).write_parquet(tmp_path / "text.parquet")
    (piece,) = split_corpus([str(tmp_path / "text.parquet")])
    assert len(read_texts(piece)) == 1
    monkeypatch.setattr("levelhead.data.corpus.reader.MAX_PIECE_BYTES", 999_999)
    with pytest.raises(LevelheadError, match="bytes of text"):
        read_texts(piece)


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b"{}", b"\xff", b"NaN", b'{"value": NaN}', b""]
)
def test_results_of_a_run(content, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "cell.a.b.c.json").write_bytes(content)
    with pytest.raises(LevelheadError, match="cannot be read"):
        load_results(tmp_path)


def test_a_link_in_a_run_shows_nothing_of_its_target(tmp_path):
    secret = tmp_path / "id_rsa"
    secret.write_text("-----BEGIN KEY-----")
    (tmp_path / "run" / "results").mkdir(parents=True)
    (tmp_path / "run" / "results" / "cell.a.b.c.json").symlink_to(secret)
    with pytest.raises(LevelheadError, match="cannot be read") as error:
        load_results(tmp_path / "run")
    assert "BEGIN" not in str(error.value)


# -- URLs


@pytest.mark.parametrize(
    "url",
    [
        "zip://a.txt::file:///tmp/x.zip",
        "tar://a.txt::/tmp/x.tar",
        "simplecache::https://example.org/x",
        "filecache::s3://bucket/x",
        "reference://",
        "github://o:r@main/x",
        "jupyter://localhost/x",
        "dask://x",
        "libarchive://x",
        "local:///etc/passwd",
        "git://x",
        "ftp://example.org/x",
        "dbfs://x",
        "generic://x",
        "dir::memory://x",
        "memory://a::memory://b",
    ],
)
def test_protocols_that_no_store_needs_are_refused(url):
    with pytest.raises(LevelheadError, match="cannot open a URL of the protocol") as error:
        open_filesystem(url)
    assert "s3" in error.value.hint


def test_a_path_that_climbs_is_a_path(tmp_path):
    """Paths are the user's choice; nothing of a file joins them."""
    (tmp_path / "a").mkdir()
    (tmp_path / "file").write_bytes(b"x")
    assert read_bytes(tmp_path / "a" / ".." / "file") == b"x"


@pytest.mark.parametrize(
    "changes",
    [
        {"attn_implementation": "evil/kernel"},
        {"_attn_implementation_internal": "evil/kernel"},
        {"experts_implementation": "evil/kernel"},
        {"fusion_config": {"x": True}},
        {"text_config": {"auto_map": {"AutoModel": "evil.Evil"}}},
        {"vision_config": [{"attn_implementation": "evil/kernel"}]},
    ],
)
@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_settings_that_name_code_are_refused_at_every_depth(name, changes, folder):
    change_json(folder / name, **changes)
    with pytest.raises(LevelheadError, match="levelhead does not follow it"):
        load(folder)


@pytest.mark.parametrize("name", ["generate.py", "modeling.py", "tokenization.py", "setup.py"])
def test_code_beside_a_model_is_not_run(name, tmp_path):
    """Also what transformers would look for when it generates."""
    model = shutil.copytree(zoo.folder("llama", "LlamaForCausalLM"), tmp_path / "model")
    for place in (model, model / "custom_generate"):
        place.mkdir(exist_ok=True)
        (place / name).write_text(f"import os\nos.mkdir({str(tmp_path / 'flag')!r})\n")
    with suppress(LevelheadError):
        load(model).generate(["the nurse"], GenerationConfig(max_tokens=2))
    assert not (tmp_path / "flag").exists()


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("config.json", {"architectures": 3}),
        ("config.json", {"model_type": {}}),
        ("config.json", {"hidden_size": 10**9}),
        ("config.json", {"vocab_size": 10**12}),
        ("config.json", {"hidden_act": "__import__('os').system('id')"}),
        ("config.json", {"pad_token_id": 10**9}),
        ("tokenizer_config.json", {"model_max_length": "x"}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"0": {"content": 3}}}),
    ],
)
def test_settings_of_other_types_are_refused_or_read(name, changes, folder):
    change_json(folder / name, **changes)
    with suppress(LevelheadError):
        assert load(folder).heads <= {"masked", "next_sentence"}


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_folders_in_the_place_of_files_are_refused(name, folder):
    (folder / name).unlink()
    (folder / name).mkdir()
    with pytest.raises(LevelheadError):
        load(folder)


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "y/" + "x" * 5000])
def test_names_that_are_no_paths_are_refused(name):
    with pytest.raises(LevelheadError, match="no path and no Hub id"):
        load(name)
