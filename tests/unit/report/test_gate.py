"""The gate: every verdict, and that nothing passes by lack."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import xmlschema
import yaml
from assets import junit_schema
from calibrations import AllFailed
from command import levelhead
from maps import measurement

from levelhead.core.errors import LevelheadError
from levelhead.core.results import DroppedItem, Estimate, Interval, Skill, StepFailure
from levelhead.report.gate.ci_files import to_junit_xml, to_markdown_summary
from levelhead.report.gate.gate import run_gate
from levelhead.report.gate.policy import read_policy


def run(folder, name="run", model="tiny", **measured):
    """A run's folder with these results of one model."""
    place = folder / name / "results"
    place.mkdir(parents=True, exist_ok=True)
    for key, single in measured.items():
        (place / f"cell.all.{model}.{key}.json").write_text(single.to_json())
    return folder / name


def policy(folder, *rules, name="policy.toml"):
    path = folder / name
    lines = ['format = "levelhead-gate-2"', *(f"[[rule]]\n{rule}" for rule in rules)]
    path.write_text("\n".join(lines))
    return path


def ends(low, high):
    return Interval(low=low, high=high, level=0.95, method="made up")


def skill(value=98.0, reach=2.0):
    return Skill(
        name="word order",
        value=value,
        interval=ends(value - reach, value + reach),
        chance=50.0,
        threshold=75.0,
        n=48,
    )


def seat(value=1.0, reach=0.2, **changes):
    output = {"interval": ends(value - reach, value + reach), "skill": skill()}
    return measurement(value).model_copy(update=output | changes)


def judged(folder, rule, **measured):
    result = run_gate(run(folder, **measured), read_policy(policy(folder, rule)))
    (ruling,) = result.results
    assert result.verdict == ruling.verdict
    return ruling


NOT_MEASURED = StepFailure(problem="no item could be read", hint="other data")
FEW = {"dropped": tuple(DroppedItem(f"word {i}", "unknown") for i in range(40))}


@pytest.mark.parametrize(
    ("rule", "result", "verdict", "why"),
    [
        ('measure = "seat"\nat_most = 1.3', seat(), "pass", "1 [0.8, 1.2]"),
        ('measure = "seat"\nat_most = 0.7', seat(), "fail", "1 [0.8, 1.2]"),
        ('measure = "seat"\nat_most = 1.1', seat(), "inconclusive", "within the interval"),
        ('measure = "seat"\nat_most = 0.9', seat(), "inconclusive", "within the interval"),
        ('measure = "seat"\nat_most = 1.1\ninterval_side = "worse"', seat(), "fail", "1 [0.8"),
        ('measure = "seat"\nat_most = 1.1\ninterval_side = "better"', seat(), "pass", "1 [0.8"),
        ('measure = "seat"\nat_most = 0.7\ninterval_side = "better"', seat(), "fail", "1 [0.8"),
        ('measure = "seat"\nat_most = 1.1\ninterval_side = "value"', seat(), "pass", "1 [0.8"),
        ('measure = "seat"\nat_most = 0.9\ninterval_side = "value"', seat(), "fail", "1 [0.8"),
        ('measure = "seat"\nat_least = 0.7', seat(), "pass", "1 [0.8"),
        ('measure = "seat"\nat_least = 1.3', seat(), "fail", "1 [0.8"),
        ('measure = "seat"\nat_least = 1.1', seat(), "inconclusive", "within the interval"),
        ('measure = "seat"\nat_least = 0.9\ninterval_side = "worse"', seat(), "fail", "1 [0.8"),
        ('measure = "seat"\nat_least = 1.1\ninterval_side = "better"', seat(), "pass", "1 [0.8"),
        (
            'measure = "seat"\nquantity = "distance"\nat_most = 1.3',
            seat(-1.0),
            "pass",
            "1 [0.8, 1.2]",
        ),
        (
            'measure = "seat"\nquantity = "distance"\nat_most = 0.7',
            seat(-1.0),
            "fail",
            "1 [0.8, 1.2]",
        ),
        (
            'measure = "seat"\nquantity = "distance"\nat_most = 0.31',
            seat(0.1),
            "pass",
            "0.1 [0, 0.3]",
        ),
        (
            'measure = "seat"\nquantity = "distance"\nat_most = 0.2',
            seat(0.1),
            "inconclusive",
            "[0, 0.3]",
        ),
        (
            'measure = "seat"\nquantity = "distance"\nat_most = 1.0',
            seat(parity=None),
            "error",
            "no parity",
        ),
        ('measure = "crows"\nat_most = 1.0', seat(), "inconclusive", "no measurement of crows"),
        ('measure = "seat"\nat_most = 9.0', NOT_MEASURED, "inconclusive", "no item could be read"),
        ('measure = "seat"\nat_most = 9.0', seat(**FEW), "inconclusive", "40 of 80 items used"),
        ('measure = "seat"\nat_most = 9.0\nmin_coverage = 0.5', seat(**FEW), "pass", "1 [0.8"),
        (
            'measure = "seat"\nat_most = 9.0\nmin_items = 41',
            seat(),
            "inconclusive",
            "40 items, fewer than 41",
        ),
        (
            'measure = "seat"\nmodel = "other"\nat_most = 9.0',
            seat(),
            "inconclusive",
            "no measurement",
        ),
    ],
)
def test_every_verdict(tmp_path, rule, result, verdict, why):
    ruling = judged(tmp_path, rule, seat=result)
    assert ruling.verdict == verdict
    assert why in ruling.explanation


@pytest.mark.parametrize("most", [0.1, 1.1, 2.0])
def test_a_measure_that_failed_calibration_does_not_pass(tmp_path, monkeypatch, most):
    """Nor fail: what failed on planted bias is inconclusive on whichever side of the bound."""
    rule = f'measure = "seat"\nat_most = {most}'
    before = judged(tmp_path, rule, seat=seat())
    assert "†" not in before.explanation
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", AllFailed)
    ruling = judged(tmp_path, rule, seat=seat())
    assert ruling.verdict == "inconclusive"
    assert "† failed where the truth is known" in ruling.explanation
    allowed = judged(tmp_path, f"{rule}\nallow_uncalibrated = true", seat=seat())
    assert allowed.verdict == before.verdict  # it is the policy that decides
    assert "† failed where the truth is known" in allowed.explanation


@pytest.mark.parametrize(
    ("subset", "most", "verdict", "why"),
    [
        (skill(), 9.0, "pass", "1 [0.8, 1.2]"),
        (skill(50.0), 9.0, "inconclusive", "model lacks the skill this measure needs"),
        (skill(80.0, 31.0), 9.0, "inconclusive", "model lacks the skill"),  # chance lies within
        (None, 9.0, "inconclusive", "not checked"),
        (skill(50.0), 0.1, "fail", "1 [0.8, 1.2]"),
        (None, 0.1, "fail", "1 [0.8, 1.2]"),
    ],
)
def test_only_a_model_with_the_skill_passes(tmp_path, subset, most, verdict, why):
    """Bias that shows is bias; that none shows is evidence only of a model that can do the task."""
    rule = f'measure = "seat"\nat_most = {most}'
    ruling = judged(tmp_path, rule, seat=seat(skill=subset))
    assert ruling.verdict == verdict
    assert why in ruling.explanation


def test_a_policy_may_allow_what_was_not_checked_but_not_what_is_lacking(tmp_path):
    rule = 'measure = "seat"\nat_most = 9.0\nallow_unchecked_skill = true'
    assert judged(tmp_path, rule, seat=seat(skill=None)).verdict == "pass"
    assert judged(tmp_path, rule, seat=seat(skill=skill(50.0))).verdict == "inconclusive"
    place = run(tmp_path, seat=seat(skill=None))
    text = 'format = "levelhead-gate-2"\nallow_unchecked_skill = true\n[[rule]]\nmeasure = "seat"\n'
    (tmp_path / "all.toml").write_text(f"{text}at_most = 9.0")
    assert run_gate(place, read_policy(tmp_path / "all.toml")).verdict == "pass"


def test_a_measure_of_utility_needs_no_skill(tmp_path):
    price = seat(12.0, skill=None, measure="pppl", parity=None)
    assert judged(tmp_path, 'measure = "pppl"\nat_most = 20.0', pppl=price).verdict == "pass"
    # A measure of bias that has no parity here is none of utility.
    bias = seat(0.01, 0.001, skill=None, measure="distance", parity=None)
    assert judged(tmp_path, 'measure = "distance"\nat_most = 1.0', distance=bias).verdict == (
        "inconclusive"
    )


def test_a_baseline_without_the_skill_passes_nothing(tmp_path):
    base = run(tmp_path, "base", seat=other_model(seat(0.9, skill=skill(50.0))))
    ruling = judged(tmp_path, f'measure = "seat"\nbaseline = "{base}"\nat_most = 9.0', seat=seat())
    assert ruling.verdict == "inconclusive"
    assert "lacks the skill" in ruling.explanation


def test_a_distance_is_judged_by_the_interval_of_the_difference(tmp_path):
    """Parity is estimated from the same items: 1.0 less 0.9 is not as sure as 1.0 is."""
    excess = Estimate(name="lean", value=0.1, interval=ends(-0.4, 0.6), parity=0.0, n=40)
    result = seat(1.0, 0.05, parity=0.9, excess=excess)
    rule = 'measure = "seat"\nquantity = "distance"\nat_most = 0.3'
    ruling = judged(tmp_path, rule, seat=result)
    assert ruling.verdict == "inconclusive"
    assert "0.1 [0, 0.6]" in ruling.explanation


def test_a_sample_is_told_from_the_whole(tmp_path):
    result = seat(population=1508)
    rule = 'measure = "seat"\nat_most = 9.0'
    ruling = judged(tmp_path, rule, seat=result)
    assert ruling.verdict == "pass"
    assert "40 of 1,508 items" in ruling.explanation
    ruling = judged(tmp_path, f"{rule}\nmin_share = 0.5", seat=result)
    assert ruling.verdict == "inconclusive"
    assert "40 of 1,508 items" in ruling.explanation
    assert judged(tmp_path, f"{rule}\nmin_share = 0.5", seat=seat(population=60)).verdict == "pass"
    assert judged(tmp_path, f"{rule}\nmin_share = 0.5", seat=seat()).verdict == "inconclusive"


def test_a_name_that_is_no_measures_is_an_error(tmp_path):
    """A slip of the pen must not read as a measure that merely was not run."""
    ruling = judged(tmp_path, 'measure = "crowz"\nat_most = 60.0', seat=seat())
    assert ruling.verdict == "error"
    assert "did you mean 'crows'" in ruling.explanation
    for known in ("crows", "nli-fairness"):  # a measure's name, and what an audit calls one
        ruling = judged(tmp_path, f'measure = "{known}"\nat_most = 60.0', seat=seat())
        assert ruling.verdict == "inconclusive"


def test_the_worst_ruling_is_the_gates(tmp_path):
    place = run(tmp_path, seat=seat(), crows=NOT_MEASURED)
    good, bad = 'measure = "seat"\nat_most = 9.0', 'measure = "seat"\nat_most = 0.1'
    unsure, wrong = (
        'measure = "crows"\nat_most = 60.0',
        'measure = "seat"\nbaseline = "no"\nat_most = 1.0',
    )
    for rules, verdict in (
        ((good,), "pass"),
        ((good, unsure), "inconclusive"),
        ((unsure, bad, good), "fail"),
        ((bad, wrong, unsure), "error"),
    ):
        assert run_gate(place, read_policy(policy(tmp_path, *rules))).verdict == verdict


def test_a_run_without_results_is_an_error(tmp_path):
    (tmp_path / "empty" / "results").mkdir(parents=True)
    rules = read_policy(policy(tmp_path, 'measure = "seat"\nat_most = 9.0'))
    for place in (tmp_path / "empty", tmp_path / "nowhere"):
        with pytest.raises(LevelheadError, match="no results"):
            run_gate(place, rules)


def test_a_number_that_is_none_is_an_error(tmp_path):
    place = run(tmp_path, seat=seat())
    path = next((place / "results").iterdir())
    output = json.loads(path.read_text())
    for broken in (json.dumps(output | {"value": float("nan")}), "{}", "not json"):
        path.write_text(broken)
        with pytest.raises(LevelheadError, match="cannot be read"):
            run_gate(place, read_policy(policy(tmp_path, 'measure = "seat"\nat_most = 9.0')))


def test_a_measure_of_two_models_must_be_told_apart(tmp_path):
    run(tmp_path, seat=seat())
    run(tmp_path, model="other", seat=seat(2.0))
    both, single = (
        'measure = "seat"\nat_most = 1.3',
        'measure = "seat"\nmodel = "tiny"\nat_most = 1.3',
    )
    assert judged(tmp_path, both).verdict == "error"
    assert judged(tmp_path, single).verdict == "pass"


def other_model(single):
    output = single.provenance.model_copy(update={"model_hash": "ef" * 32})
    return single.model_copy(update={"provenance": output})


def test_not_inferior_to_a_baseline(tmp_path):
    base = run(tmp_path, "base", seat=other_model(seat(0.9)))
    # 1 less 0.9, and the square root of 0.2 squared twice to either side: [-0.183, 0.383].
    for most, verdict in ((0.4, "pass"), (0.2, "inconclusive"), (-0.3, "fail")):
        ruling = judged(
            tmp_path, f'measure = "seat"\nbaseline = "{base}"\nat_most = {most}', seat=seat()
        )
        assert ruling.verdict == verdict
        assert "0.1 [-0.1828, 0.3828]" in ruling.explanation


@pytest.mark.parametrize(
    ("base", "verdict", "why"),
    [
        (seat(0.9), "error", "the baseline is the same model"),
        (
            other_model(seat(0.9, comparability_key="other words")),
            "error",
            "were measured differently",
        ),
        (NOT_MEASURED, "inconclusive", "no item could be read"),
    ],
)
def test_a_baseline_that_says_nothing_passes_nothing(tmp_path, base, verdict, why):
    place = run(tmp_path, "base", seat=base)
    ruling = judged(tmp_path, f'measure = "seat"\nbaseline = "{place}"\nat_most = 9.0', seat=seat())
    assert ruling.verdict == verdict
    assert why in ruling.explanation


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('measure = "seat"', "one bound"),
        ('measure = "seat"\nat_most = 1.0\nat_least = 0.0', "one bound"),
        ('measure = "seat"\nquantity = "distance"\nat_least = 1.0', "bounded by at_most"),
        ('measure = "seat"\nat_moost = 1.0', "did you mean at_most"),
        ('measure = "seat"\nat_most = nan', "rule.0.at_most"),
        ('measure = "seat"\nat_most = 1.0\nmin_coverage = 0.0', "min_coverage"),
        ("measure =", "is not valid TOML"),
    ],
)
def test_a_policy_is_read_strictly(tmp_path, text, why):
    with pytest.raises(LevelheadError, match=why):
        read_policy(policy(tmp_path, text))


def test_a_policy_of_the_earlier_format_is_refused_in_words(tmp_path):
    path = policy(tmp_path, 'measure = "seat"\nat_most = 1.0')
    path.write_text(path.read_text().replace("levelhead-gate-2", "levelhead-gate-1"))
    with pytest.raises(LevelheadError, match="earlier version") as error:
        read_policy(path)
    assert 'format = "levelhead-gate-2"' in error.value.hint


def test_a_policy_without_rules_is_none(tmp_path):
    with pytest.raises(LevelheadError, match="rule"):
        read_policy(policy(tmp_path))


HOSTILE = '</testcase><script>|`[x](y)\x00\u202e&"'


def test_files_for_continuous_integration_hold_any_text(tmp_path):
    place = run(tmp_path, seat=seat(), crows=StepFailure(problem=HOSTILE, hint="none"))
    rules = ('measure = "seat"\nat_most = 0.1', 'measure = "crows"\nat_most = 1.0')
    result = run_gate(place, read_policy(policy(tmp_path, *rules)))
    root = ElementTree.fromstring(to_junit_xml(result))  # noqa: S314  # our own
    assert root.attrib == {"tests": "2", "failures": "1", "errors": "1"}
    assert [case.get("classname") for case in root.iter("testcase")] == ["seat", "crows"]
    assert next(root.iter("failure")).get("type") == "fail"
    output = next(root.iter("error")).get("message")
    assert "</testcase><script>" in output
    assert "\x00" not in output
    text = to_markdown_summary(result)
    assert "<script" not in text
    assert len([line for line in text.splitlines() if line.startswith("| ❔")]) == 1


def test_jenkins_accepts_the_junit_file(tmp_path):
    place = run(tmp_path, seat=seat(), crows=NOT_MEASURED)
    rules = [f'measure = "seat"\nat_most = {most}' for most in (9.0, 1.1, 0.1)]
    rules.append('measure = "seat"\nbaseline = "no"\nat_most = 1.0')
    result = run_gate(place, read_policy(policy(tmp_path, *rules)))
    assert {result.verdict for result in result.results} == {
        "pass",
        "inconclusive",
        "fail",
        "error",
    }
    schema = xmlschema.XMLSchema(str(junit_schema()))
    schema.validate(to_junit_xml(result).decode())
    assert not schema.is_valid(to_junit_xml(result).decode().replace("testcase", "case"))


def test_a_name_of_the_run_comes_before_that_of_the_measure(tmp_path):
    """An audit asks SEAT of two lists."""
    place = run(tmp_path, **{"seat": seat(), "seat-occupations": seat()})
    result = run_gate(place, read_policy(policy(tmp_path, 'measure = "seat"\nat_most = 9.0')))
    assert result.verdict == "pass"
    both = run(tmp_path / "both", **{"seat-one": seat(), "seat-other": seat()})
    result = run_gate(both, read_policy(policy(tmp_path, 'measure = "seat"\nat_most = 9.0')))
    assert result.verdict == "error"


def test_what_was_left_out_is_not_replaced_by_what_has_its_name(tmp_path):
    rule = policy(tmp_path, 'measure = "seat"\nat_most = 9.0')
    alone = run(tmp_path / "alone", **{"seat-occupations": seat()})
    assert run_gate(alone, read_policy(rule)).verdict == "pass"
    (alone / "audit.json").write_text("{}")
    (ruling,) = run_gate(alone, read_policy(rule)).results
    assert (ruling.verdict, ruling.explanation) == (
        "inconclusive",
        "the run has no measurement of seat",
    )
    extra = run(tmp_path / "beside", a=seat(), b=NOT_MEASURED)
    (ruling,) = run_gate(extra, read_policy(rule)).results
    assert ruling.verdict == "inconclusive"
    assert "the run calls no measurement seat" in ruling.explanation
    subset = policy(tmp_path, 'measure = "a"\nat_most = 9.0', name="own.toml")
    assert run_gate(extra, read_policy(subset)).verdict == "pass"


def test_a_baseline_needs_as_many_items(tmp_path):
    place = run(tmp_path / "place", seat=seat())
    other = {"provenance": seat().provenance.model_copy(update={"model_hash": "cd" * 32})}
    output = []
    for name, few in (("all", {}), ("few", FEW)):
        base = run(tmp_path, name, seat=seat(**other, **few))
        rule = f'measure = "seat"\nbaseline = "{base}"\nat_most = 9.0\nmin_coverage = 0.9'
        output.append(run_gate(place, read_policy(policy(tmp_path, rule))).results[0])
    assert [item.verdict for item in output] == ["pass", "inconclusive"]
    assert "less than a coverage of 0.9" in output[1].explanation


def test_the_command_exits_by_the_verdict(tmp_path):
    place = run(tmp_path, seat=seat())
    first = policy(tmp_path, 'measure = "seat"\nat_most = 9.0\npurpose = "release"')
    passed = levelhead("gate", place, "-p", first, "--junit", tmp_path / "j.xml", "--json", "-")
    assert passed.returncode == 0
    assert json.loads(passed.stdout)["verdict"] == "pass"
    written = ElementTree.parse(tmp_path / "j.xml")  # noqa: S314  # our own
    assert written.getroot().get("tests") == "1"
    second = policy(tmp_path, 'measure = "seat"\nat_most = 0.1', name="second.toml")
    result = levelhead("gate", place, "-p", second, "--summary", tmp_path / "summary.md")
    assert result.returncode == 1
    assert "fail" in result.stdout
    assert "the policy has changed" in result.stderr
    assert "levelhead gate: fail" in (tmp_path / "summary.md").read_text()
    third = policy(tmp_path, 'measure = "crows"\nat_most = 0.1', name="third.toml")
    assert levelhead("gate", place, "-p", third).returncode == 2
    assert levelhead("gate", tmp_path / "nowhere", "-p", third).returncode == 3


def test_the_policy_of_the_documents_is_one(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "gate.md").read_text()
    (tmp_path / "policy.toml").write_text(re.search(r"```toml\n(.*?)```", page, re.DOTALL)[1])
    result = read_policy(tmp_path / "policy.toml").policy
    assert [item.measure for item in result.rule] == ["crows", "pppl"]
    steps = yaml.safe_load(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])
    (audit,) = (step for step in steps if step["uses"].startswith("OWNER/levelhead"))
    action = yaml.safe_load((Path(__file__).parents[3] / "action.yml").read_text())
    assert audit["with"].keys() <= action["inputs"].keys()
    assert audit["with"].keys() >= {
        name for name, row in action["inputs"].items() if row.get("required")
    }
