"""Pages that list what the source has are complete: commands, formats, tables of measures."""

import re
import runpy
import tomllib
from pathlib import Path

from levelhead.data.lexicons.lexicon import lexicon
from levelhead.report.gate.policy import Policy, Rule
from levelhead.study.config import StudyConfig
from levelhead.study.table_row import TableRow

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def section(page, heading):
    """The text under a heading of the second level."""
    text = (DOCS / page).read_text()
    assert f"\n## {heading}\n" in text
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def first_cells(text):
    """The names in code in the first cells of its tables."""
    cells = re.findall(r"^\| (`[^|]+) \|", text, flags=re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_every_command_is_listed():
    usage = (ROOT / "tests" / "golden" / "help.txt").read_text().partition("Commands:\n")[2]
    names = re.findall(r"^  (\w+) ", usage.partition("\n\n")[0], flags=re.MULTILINE)
    page = (DOCS / "reference" / "cli.md").read_text()
    listed = first_cells(page)
    assert listed == {f"levelhead {name}" for name in names}


def test_keys_of_studies_tables_and_policies_are_listed():
    keys = {
        re.sub(r"[\[\]]|\.NAME", "", name)
        for name in first_cells(section("reference/formats.md", "Study file"))
    }
    assert keys == StudyConfig.model_fields.keys() - {"format"}
    assert first_cells(section("reference/formats.md", "Table (CSV)")) == set(TableRow.model_fields)
    rules = first_cells(section("how-to/gate.md", "The policy file"))
    assert rules == set(Rule.model_fields)
    assert Policy.model_fields.keys() - {"format", "rule"} <= rules


def test_the_lexicon_of_the_guide_is_one(tmp_path):
    text = (DOCS / "how-to" / "lexicon.md").read_text()
    written = re.search(r"<< 'END'\n(.*?)END\n", text, flags=re.DOTALL)[1]
    (tmp_path / "region.toml").write_text(written)
    read = lexicon(str(tmp_path / "region.toml"))
    assert list(read.groups) == tomllib.loads(written)["groups"]
    assert read.targets("warmth").sides[0].stereotyped_group == "southern"


def test_tables_of_measure_pages_are_those_of_the_source():
    tool = runpy.run_path(str(ROOT / "tools" / "measure_pages.py"))
    pages = [page for page in tool["PAGES"].glob("*.md") if "<!-- options" in page.read_text()]
    assert len(pages) >= 19
    for page in pages:
        text = page.read_text()
        assert tool["updated"](text) == text, f"{page.name}: python tools/measure_pages.py --write"
        wrong = text.replace("| option | default |", "| option | value |")
        assert tool["updated"](wrong) == text
        for heading in ("Formula", "Requirements", "Options", "Validation on planted bias"):
            assert f"\n## {heading}\n" in text, page.name
