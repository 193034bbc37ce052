"""What is missing is said when a chart is drawn, not when the room is entered."""

import sys

import pytest
from command import script
from maps import head_map

from levelhead.core.errors import MissingExtraError
from levelhead.report.charts.registry import chart, save
from levelhead.report.lazy_altair import _LazyModule, alt
from levelhead.report.save import vega_bundle


def test_without_altair_the_mend_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(MissingExtraError) as error:
        chart(head_map(2, 2))
    assert str(error.value) == (
        "drawing charts needs packages that are not installed\n"
        "  hint: pip install 'levelhead[report]', or pip install '.[report]' in a clone"
    )


def test_without_the_converter_too(monkeypatch, tmp_path):
    sample = chart(head_map(2, 2))
    vega_bundle.cache_clear()  # another page of this process may have bundled it
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    for name in ("a.html", "a.svg", "a.png"):
        with pytest.raises(MissingExtraError, match="levelhead\\[report\\]"):
            save(sample, tmp_path / name)
    assert not list(tmp_path.iterdir())
    save(sample, tmp_path / "a.json")


def test_entering_the_room_imports_no_altair(tmp_path):
    """In a process that has imported every module of levelhead, and nothing else of ours."""
    code = tmp_path / "entered.py"
    code.write_text(
        "import levelhead.report.charts.registry, sys\n"
        "assert 'levelhead.report.audit_page.page' in sys.modules\n"
        "sys.exit(any(name in sys.modules for name in ('altair', 'vl_convert')))\n"
    )
    assert script(code, tmp_path).returncode == 0


def test_what_a_module_does_not_have_is_no_missing_package():
    with pytest.raises(AttributeError):
        _ = alt.no_such_thing
    assert _LazyModule("math").pi > 3
