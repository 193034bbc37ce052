"""Every error has a word on docs/errors.md."""

import pkgutil
import re
from importlib import import_module
from pathlib import Path

import levelhead
from levelhead.core.errors import LevelheadError

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"


def kinds(one):
    return {one}.union(*(kinds(own) for own in one.__subclasses__()))


def test_every_error_is_explained_and_no_other():
    for module in pkgutil.walk_packages(levelhead.__path__, "levelhead."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    ours = {one.__name__ for one in kinds(LevelheadError) if one.__module__.startswith("levelhead")}
    told = re.findall(r"^\*\*(\w+)\*\*:", PAGE.read_text(), flags=re.MULTILINE)
    assert len(set(told)) == len(told)
    assert set(told) == ours - {"LevelheadError"}
