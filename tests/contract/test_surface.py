"""`import levelhead` is lazy and typed; the two lists of names agree."""

import ast
from pathlib import Path

import pytest

import levelhead


def typed_names():
    """Name -> module, as the TYPE_CHECKING block of __init__ says it."""
    names = {}
    for node in ast.parse(Path(levelhead.__file__).read_text()).body:
        if isinstance(node, ast.If):
            for line in node.body:
                names |= {alias.asname: line.module for alias in line.names}
    return names


def test_what_the_type_checker_sees_is_what_is_there():
    assert typed_names() == levelhead._HOME
    assert sorted(levelhead.__all__) == sorted(levelhead._HOME)


def test_every_name_can_be_had():
    for name, module in levelhead._HOME.items():
        assert getattr(levelhead, name).__module__ == module
        assert name in dir(levelhead)
    everything = {}
    exec("from levelhead import *", everything)  # noqa: S102  # star imports work only this way
    assert set(levelhead._HOME) <= set(everything)


def test_a_wrong_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Messurement'"):
        levelhead.Messurement  # noqa: B018


def test_types_are_shipped():
    assert Path(levelhead.__file__).with_name("py.typed").exists()
