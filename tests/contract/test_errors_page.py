"""Every error has a word on docs/reference/errors.md."""

import pkgutil
import re
from importlib import import_module
from pathlib import Path

import levelhead
from levelhead.core.errors import LevelheadError

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"


def kinds(single):
    return {single}.union(*(kinds(subclasse) for subclasse in single.__subclasses__()))


def test_every_error_is_explained_and_no_other():
    for module in pkgutil.walk_packages(levelhead.__path__, "levelhead."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    ours = {
        kind.__name__ for kind in kinds(LevelheadError) if kind.__module__.startswith("levelhead")
    }
    output = re.findall(r"^\*\*(\w+)\*\*:", PAGE.read_text(), flags=re.MULTILINE)
    assert len(set(output)) == len(output)
    assert set(output) == ours - {"LevelheadError"}
