"""Keys and passwords are in no result, log, store or message, and go to no other server."""

import logging
import traceback

import pytest
from faults import invoke
from faulty_server import faulty_server, generated, reply

from levelhead.core.errors import LevelheadError
from levelhead.core.files import absolute_url, open_filesystem
from levelhead.models.loading.http_model import HttpModel
from levelhead.models.loading.open_model import open_model
from levelhead.models.serving.addresses import check_key_hosts
from levelhead.study.config import read_study_config
from levelhead.study.leaderboard import read_models

KEY = "sk-top-secret-key"
STUDY = (
    'format = "levelhead-study-2"\nname = "x"\n[models.m]\npath = "{path}"\n'
    '[measures]\nppl = "ppl:texts={texts}"\n'
    '[measurements.all]\nmodels = ["m"]\nmeasures = ["ppl"]\n'
)


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("LEVELHEAD_KEY", KEY)
    monkeypatch.delenv("LEVELHEAD_KEY_HOSTS", raising=False)


def study(folder, path="model", texts="texts.txt"):
    (folder / "study.toml").write_text(STUDY.format(path=path, texts=texts))
    return folder / "study.toml"


def all_bytes(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "address",
    [
        f"https://me:{KEY}@example.org",
        f"https://{KEY}@example.org",
        f"https://me:{KEY}@example.org:port",
        f"https://me:{KEY}/x@example.org",
        f"https://example.org/v1?api_key={KEY}",
        f"https://example.org?{KEY}",
        f"ftp://me:{KEY}@example.org",
        f"http://[::1{KEY}",
    ],
)
def test_an_address_with_a_secret_is_refused_without_it(address, tmp_path):
    for make in (open_model, HttpModel):
        with pytest.raises(LevelheadError) as error:
            make(address)
        shown = "".join(traceback.format_exception(error.value))
        # The line of this test is the only one with the address.
        assert KEY not in str(error.value)
        assert shown.count(KEY) <= shown.count("make(address)")


@pytest.mark.parametrize(
    "url",
    [
        f"s3://id:{KEY}@bucket/x",
        f"sftp://me:{KEY}@host/x",
        f"https://me:{KEY}@host/x.jsonl",
        f"https://host/x.jsonl?X-Amz-Signature={KEY}",
        f"az://account:{KEY}@x",
    ],
)
def test_a_url_with_a_secret_is_refused_without_it(url):
    for use in (open_filesystem, absolute_url):
        with pytest.raises(LevelheadError, match="a password or a query") as error:
            use(url)
        assert KEY not in str(error.value)


@pytest.mark.parametrize("name", ["LEVELHEAD_KEY", "LEVELHEAD_KEY_HOSTS", "LEVELHEAD_key"])
def test_a_study_does_not_read_the_key(name, tmp_path, monkeypatch):
    monkeypatch.setenv(name, KEY)
    path = study(tmp_path, f"https://example.org/${{{name}}}")
    with pytest.raises(LevelheadError, match="in a study") as error:
        read_study_config(path)
    assert KEY not in str(error.value)


@pytest.mark.parametrize("name", ["HOME", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY"])
def test_a_study_reads_no_variable_of_others(name, tmp_path, monkeypatch):
    monkeypatch.setenv(name, KEY)
    with pytest.raises(LevelheadError, match="in a study") as error:
        read_study_config(study(tmp_path, f"${{{name}}}"))
    assert KEY not in str(error.value)


@pytest.mark.parametrize("text", ["path", "measure"])
def test_a_study_does_not_choose_who_gets_the_key(text, tmp_path, monkeypatch):
    address = "https://evil.example/v1"
    path = (
        study(tmp_path, address)
        if text == "path"
        else study(tmp_path, texts=f"x,scorer=judge:{address}")
    )
    if text == "path":
        result = invoke("study", "run", path, "-o", tmp_path / "run", "--quiet")
        assert "evil.example, which would get the key" in str(result.exception)
        assert not (tmp_path / "run").exists()
    with pytest.raises(LevelheadError, match=r"evil\.example") as error:
        check_key_hosts(path.read_text(), "the study")
    assert "LEVELHEAD_KEY_HOSTS=evil.example" in error.value.hint
    monkeypatch.setenv("LEVELHEAD_KEY_HOSTS", "other.example, evil.example")
    check_key_hosts(path.read_text(), "the study")
    monkeypatch.delenv("LEVELHEAD_KEY")
    monkeypatch.delenv("LEVELHEAD_KEY_HOSTS")
    check_key_hosts(path.read_text(), "the study")


def test_a_list_of_models_does_not_choose_who_gets_the_key(tmp_path):
    (tmp_path / "models.txt").write_text("gpt2\nhttps://evil.example/v1#m\n")
    with pytest.raises(LevelheadError, match=r"evil\.example"):
        read_models(tmp_path / "models.txt")
    (tmp_path / "models.txt").write_text("gpt2\nhttp://127.0.0.1:8080\n")
    assert read_models(tmp_path / "models.txt") == ["gpt2", "http://127.0.0.1:8080"]


def test_a_study_with_a_password_is_written_nowhere(tmp_path):
    path = study(tmp_path, f"https://me:{KEY}@example.org")
    result = invoke("study", "run", path, "-o", tmp_path / "run", "--quiet")
    assert "contains a name or a password" in str(result.exception)
    assert KEY not in f"{result.exception}{result.output}"
    assert not (tmp_path / "run").exists()


def test_nothing_that_a_run_writes_holds_the_key(tmp_path, caplog):
    """Results, store, provenance and logs of a server that repeats the key in its answers."""
    caplog.set_level(logging.DEBUG)
    with faulty_server(lambda number, body: reply(generated())) as (url, queries):
        words = [
            "measure",
            f"{url}/v1#small",
            "-m",
            "generation:k=1,tokens=4,subsample_fraction=0.05",
        ]
        result = invoke(
            *(*words, "--store", tmp_path / "s", "-o", tmp_path / "out.json", "--json"),
            *("--resamples", "99", "--permutations", "99"),
        )
        assert all(headers["authorization"] == f"Bearer {KEY}" for _, _, headers in queries)
    assert queries
    written = all_bytes(tmp_path) + f"{result.output}{result.exception}{caplog.text}".encode()
    assert KEY.encode() not in written


def test_an_error_that_repeats_the_key_is_shown_without_it(caplog):
    caplog.set_level(logging.DEBUG)
    refused = reply({"error": f"bad key {KEY}"}, status=401)
    with faulty_server(lambda number, body: refused) as (url, _):
        result = invoke(
            "measure", f"{url}/v1#small", "-m", "generation:k=1,tokens=4,subsample_fraction=0.05"
        )
    assert isinstance(result.exception, LevelheadError)
    shown = "".join(traceback.format_exception(result.exception))
    assert KEY not in f"{shown}{result.output}{caplog.text}"


def test_the_key_is_in_no_text_of_a_model():
    remote = HttpModel("https://example.org", key=KEY)
    assert KEY not in f"{remote!r} {remote}"
