"""`import levelhead` is lazy and typed; every public name can be imported."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import levelhead
from levelhead._lazy import public_names
from levelhead.measures.registry import MEASURES

ROOT = Path(__file__).parents[2]

NAMESPACES = {
    "levelhead": levelhead,
    "levelhead.data": levelhead.data,
    "levelhead.edits": levelhead.edits,
    "levelhead.explain": levelhead.explain,
    "levelhead.measures": levelhead.measures,
    "levelhead.mitigation": levelhead.mitigation,
    "levelhead.organisms": levelhead.organisms,
}


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_every_name_can_be_imported(namespace):
    package = NAMESPACES[namespace]
    names = public_names(Path(package.__file__).read_text())
    names.pop("__version__", None)
    assert package.__all__ == sorted(names)
    for name, (module, original) in names.items():
        value = getattr(package, name)
        if isinstance(value, ModuleType):
            # `levelhead.locate` is a package that can be called.
            home = module if name == "locate" else f"{module}.{original}"
            assert value is import_module(home)
        else:
            assert value.__module__ == module
        assert name in dir(package)


def test_every_measure_is_exported_and_has_its_places_in_the_documentation():
    reference = (ROOT / "docs" / "api" / "measures.md").read_text().split()
    navigation = (ROOT / "mkdocs.yml").read_text()
    for measure_class in MEASURES.values():
        assert getattr(levelhead.measures, measure_class.__name__) is measure_class
        assert f"{measure_class.__module__}.{measure_class.__name__}" in reference
    for page in (ROOT / "docs" / "measures").glob("*.md"):
        assert f": measures/{page.name}\n" in navigation, page


def test_everything_can_be_imported_at_once():
    everything = {}
    exec("from levelhead import *", everything)  # noqa: S102  # star imports work only this way
    assert set(levelhead.__all__) <= set(everything)


def test_a_wrong_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Messurement'"):
        levelhead.Messurement  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'Saet'"):
        levelhead.measures.Saet  # noqa: B018


def test_types_are_shipped():
    assert Path(levelhead.__file__).with_name("py.typed").exists()
