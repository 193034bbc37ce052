"""What other repositories use in CI: the action, hooks, SARIF files and JSON Schemas."""

import json
import os
import subprocess
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml
from command import levelhead
from sarif_pydantic import Sarif

from levelhead.report.gate.gate import GateReport, RuleResult
from levelhead.report.gate.policy import Policy
from levelhead.report.gate.sarif import to_sarif
from levelhead.study.config import StudyConfig
from levelhead.study.schema import make_schema

ROOT = Path(__file__).parents[2]
POLICY = """\
format = "levelhead-gate-2"

[[rule]]
measure = "crows"
at_most = 60

[[rule]]
measure = "seat"
at_most = 1
"""
SCHEMAS = {"policy": Policy, "study": StudyConfig}


def report(*verdicts):
    return GateReport(
        verdict="fail",
        results=tuple(
            RuleResult(rule=f"{name} at most 1", measure=name, verdict=verdict, explanation="\x1b")
            for name, verdict in zip(("crows", "seat"), verdicts, strict=True)
        ),
        policy_sha256="a" * 64,
    )


def test_sarif_points_at_the_rules_that_did_not_pass(tmp_path):
    path = tmp_path / "a policy.toml"
    path.write_text(POLICY)
    text = to_sarif(report("inconclusive", "fail"), path)
    run = Sarif.model_validate_json(text).runs[0]
    assert [result.level.value for result in run.results] == ["warning", "error"]
    assert [result.locations[0].physical_location.region.start_line for result in run.results] == [
        3,
        7,
    ]
    (uri,) = {result.locations[0].physical_location.artifact_location.uri for result in run.results}
    assert uri.endswith("a%20policy.toml")
    assert [rule.id for rule in run.tool.driver.rules] == ["crows/1", "seat/2"]
    assert all("\x1b" not in result.message.text for result in run.results)  # shown, not sent
    fingerprints = [
        result["partialFingerprints"] for result in json.loads(text)["runs"][0]["results"]
    ]
    path.write_text("# a comment\n" + POLICY)
    moved = json.loads(to_sarif(report("inconclusive", "fail"), path))["runs"][0]["results"]
    assert [result["partialFingerprints"] for result in moved] == fingerprints
    assert fingerprints[0] != fingerprints[1]


def test_a_pass_is_no_alert_and_is_counted(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(POLICY)
    run = json.loads(to_sarif(report("pass", "error"), path))["runs"][0]
    assert [result["ruleId"] for result in run["results"]] == ["seat/2"]
    assert (run["properties"]["pass"], run["properties"]["error"]) == (1, 1)


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schemas_in_the_documents_are_those_of_the_models(name):
    path = ROOT / f"docs/reference/{name}.schema.json"
    assert path.read_text() == make_schema(SCHEMAS[name])
    command = ("gate", "--schema") if name == "policy" else ("study", "schema")
    assert levelhead(*command).stdout == path.read_text()


def test_editors_accept_and_refuse_what_levelhead_does():
    schema = json.loads(make_schema(Policy))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(tomllib.loads(POLICY), schema)
    for wrong in (
        POLICY.replace("at_most = 1\n", "at_mst = 1\n"),
        POLICY.replace("at_most = 1\n", "at_most = 1\nat_least = 0\n"),
        POLICY.replace("at_most = 1\n", ""),
        'format = "levelhead-gate-2"\nrule = []\n',
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(tomllib.loads(wrong), schema)


def test_every_study_of_the_repository_fits_the_schema():
    schema = json.loads(make_schema(StudyConfig))
    jsonschema.Draft202012Validator.check_schema(schema)
    paths = [*ROOT.glob("papers/*/study*.toml"), ROOT / "tests/golden/every_kind.toml"]
    assert len(paths) > 5
    for path in paths:
        jsonschema.validate(tomllib.loads(path.read_text()), schema)
    with pytest.raises(jsonschema.ValidationError, match="measurments"):
        jsonschema.validate(tomllib.loads(paths[0].read_text()) | {"measurments": {}}, schema)


def run_action(tmp_path, code, *, policy):
    """Run the steps of the action with a stand-in that exits with a code, and records its words."""
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "levelhead").write_text(
        f'#!/bin/bash\nprintf "%s|" "$@" >> {tmp_path}/calls; echo >> {tmp_path}/calls\n'
        f'if [ "$1" = gate ]; then exit {code}; fi\nexit 2\n'
    )
    (commands / "levelhead").chmod(0o755)
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    values = {
        "model": "a model; touch broken",
        "edit": "",
        "against": "base",
        "budget": "5m",
        "output": "audit",
        "policy": policy,
    }
    codes = {}
    for step in steps:
        if step.get("name") not in ("audit", "gate"):
            continue
        environment = {
            key: values[text.removeprefix("${{ inputs.").removesuffix(" }}")]
            for key, text in step["env"].items()
        }
        codes[step["name"]] = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            env={
                "PATH": f"{commands}:{os.environ['PATH']}",
                "GITHUB_OUTPUT": str(tmp_path / "output"),
                **environment,
            },
            cwd=tmp_path,
            check=False,
        ).returncode
    return codes, (tmp_path / "calls").read_text().splitlines()


@pytest.mark.parametrize(("code", "verdict"), [(0, "pass"), (1, "fail"), (2, "inconclusive")])
def test_the_action_ends_as_the_gate_and_runs_nothing_of_its_inputs(tmp_path, code, verdict):
    codes, calls = run_action(tmp_path, code, policy="policy.toml")
    assert codes == {"audit": 0, "gate": code}  # an inconclusive audit is for the gate to decide
    assert (tmp_path / "output").read_text() == f"verdict={verdict}\n"
    assert calls == [
        "audit|a model; touch broken|-o|audit|--budget|5m|--quiet|--against|base|",
        "gate|audit|--policy|policy.toml|--junit|audit/gate.xml|--sarif|audit/gate.sarif|",
    ]
    assert not (tmp_path / "broken").exists()


def test_the_options_of_the_action_exist():
    for command, options in {
        "audit": ["--budget", "--quiet", "--edit", "--against"],
        "gate": ["--policy", "--junit", "--sarif"],
    }.items():
        page = levelhead(command, "--help").stdout
        assert all(option in page for option in options)


def test_the_hooks_name_commands_that_take_several_files(tmp_path):
    hooks = {
        row["id"]: row for row in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    }
    for row in hooks.values():
        words = row["entry"].split()
        assert words[0] == "levelhead"
        assert levelhead(*words[1:], "--help").returncode == 0
    lexicon = ROOT / "src/levelhead/data/lexicons/gender-en.toml"
    copy = tmp_path / "lexicon.toml"
    copy.write_text(lexicon.read_text() + "\nunknown = 1\n")
    entry = hooks["levelhead-lexicon"]["entry"].split()[1:]
    assert levelhead(*entry, lexicon, lexicon).returncode == 0
    assert levelhead(*entry, lexicon, copy).returncode in (1, 3)


def test_workflows_may_write_only_where_they_must():
    written = {"codeql.yml": {"security-events"}, "release.yml": {"id-token"}}
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {"contents": "read"}, path
        rights = set()
        for job in workflow["jobs"].values():
            for name, right in job.get("permissions", {}).items():
                rights |= {name} if right == "write" else set()
            for step in job["steps"]:
                # A value of an event, pasted into a script, could be a command.
                assert "${{ github.event" not in step.get("run", "")
        assert rights == written.get(path.name, set()), path


def test_what_the_image_copies_is_there():
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    assert {"pyproject.toml", "src", "LICENSE"} <= set(copied)
    assert all((ROOT / name).exists() for name in copied)
