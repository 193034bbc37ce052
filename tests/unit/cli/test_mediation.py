"""`levelhead explain mediation`: a table, a file, and exit 2 where nothing is shown."""

import pytest
from assets import asset
from typer.testing import CliRunner

from levelhead.cli import app
from levelhead.cli.explain.mediation import parse_twin_words
from levelhead.cli.shared.exit_codes import INCONCLUSIVE, ExitWithCode
from levelhead.core.errors import LevelheadError
from levelhead.locate.patching.mediation_map import MediationMap

PAIRS = "secretary=engineer,nurse=lawyer,teacher=driver,cleaner=guard,editor=farmer,cook=clerk"


def run(*args):
    given = ("explain", "mediation", asset("models", "minibert-en"), "--resamples", "99", *args)
    return CliRunner().invoke(app, [str(argument) for argument in given])


def test_table_and_file(tmp_path):
    output = tmp_path / "map.json"
    result = run(
        *("-m", "cloze:backgrounds=1,kinds=pronoun", "--twins", PAIRS, "--patch-top", "3"),
        *("--direct", "--components", "mlp", "-o", output, "--split", "none", "--quiet"),
    )
    kept = MediationMap.from_json(output.read_bytes())
    assert isinstance(result.exception, ExitWithCode) == (not kept.is_total_shown), result.output
    assert sum(effect.indirect is not None for effect in kept.effects) == 3
    assert sum(effect.direct is not None for effect in kept.effects) == 3
    for text in ("total effect on cloze", "mlp 1", "3 of 6 parts were exchanged", "left out: "):
        assert text in result.stdout
    assert str(kept.total.interval) in result.stdout


def test_without_a_total_effect_no_part_is_named():
    # Four items: too few to show what the exchange changes.
    result = run(
        "-m", "cloze:backgrounds=1,kinds=pronoun", "--twins", "cook=clerk,guard=editor", "--quiet"
    )
    assert isinstance(result.exception, ExitWithCode), result.output
    assert result.exception.code == INCONCLUSIVE
    assert "inconclusive: the exchange of words is not shown to change the measure" in result.stdout


def test_words_of_the_command_line():
    assert parse_twin_words("gender-en") == "gender-en"
    assert parse_twin_words("nurse=engineer, clerk = driver") == {
        "nurse": "engineer",
        "clerk": "driver",
    }
    for text in ("nurse=", "=x", "a=b,c"):
        with pytest.raises(LevelheadError, match="no pair of words"):
            parse_twin_words(text)
