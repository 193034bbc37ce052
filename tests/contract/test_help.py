"""Every page of help: complete phrases, values that are expected, defaults, and examples."""

import importlib.util
import re
import shlex
import sys
from pathlib import Path

import pytest
import typer

from levelhead.cli import app
from levelhead.cli.shared.help_pages import Panel
from levelhead.cli.shared.measure_names import MEASURE_NAMES, METRIC_NAMES
from levelhead.measures.registry import MEASURES, metric_texts

TOOL = Path(__file__).parents[2] / "tools" / "structure.py"
JARGON = ("locator", "carrier", "verbalizer", "likeliest", "overturned", "twins? of")
TYPER_OPTIONS = {"help", "version", "install_completion", "show_completion"}


def pages(group, words=()):
    """Every command and group, by its words."""
    yield words, group
    for name, command in getattr(group, "commands", {}).items():
        yield from pages(command, (*words, name))


PAGES = dict(pages(typer.main.get_command(app)))
each_page = pytest.mark.parametrize("words", PAGES, ids=" ".join)


def parameters(words):
    """A command's options and arguments, without typer's own."""
    return [param for param in PAGES[words].params if param.name not in TYPER_OPTIONS]


def page(words):
    """The help page of a command, as on a terminal of 80 columns."""
    command = PAGES[words]
    context = typer.Context(command, info_name=" ".join(("levelhead", *words)), terminal_width=78)
    return command.get_help(context)


@pytest.fixture(scope="module")
def retired():
    """The words that structure.py keeps out."""
    spec = importlib.util.spec_from_file_location("structure_for_help", TOOL)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # named tuples look their module up
    spec.loader.exec_module(module)
    del sys.modules[spec.name]
    return rf"\b({'|'.join((*module.RETIRED, *module.RETIRED_PHRASES, *JARGON))})\b"


@each_page
def test_help_is_made_of_phrases(words, retired):
    for text in (PAGES[words].help, *(parameter.help for parameter in parameters(words))):
        assert text[0].isupper(), text
        assert text.endswith("."), text
        assert " " in text
        assert not re.match(r"(Of|For|With|By|As) ", text), text
        assert not re.search(retired, text, re.IGNORECASE), text


@each_page
def test_a_value_is_named_by_what_is_expected(words):
    for parameter in parameters(words):
        if not getattr(parameter, "is_flag", False):
            assert parameter.metavar, parameter.name
            assert parameter.metavar == parameter.metavar.upper()


@each_page
def test_a_default_is_shown(words):
    for parameter in parameters(words):
        if parameter.param_type_name == "argument" or parameter.default in (None, False):
            continue
        value = str(parameter.default)
        if parameter.is_flag:
            value = parameter.opts[0].removeprefix("--")
        text = parameter.get_help_record(typer.Context(PAGES[words]))[1]
        assert f"[default: {value}" in " ".join(text.split())


@each_page
def test_a_page_has_sections_and_examples(words):
    text = page(words)
    for parameter in parameters(words):
        if parameter.param_type_name == "option":
            assert parameter.rich_help_panel in tuple(Panel)
            assert f"\n{parameter.rich_help_panel}:\n" in text
    # Neither types nor braces around arguments.
    assert not re.search(r"<(str|int|float|list)|\{\w+\}", text)
    assert 1 <= len(text.partition("\nExamples:\n")[2].splitlines()) <= 3


@each_page
def test_examples_fit_the_screen_and_can_be_parsed(words):
    lines = PAGES[words].epilog.splitlines()
    # The first example is of this command; another one may show the next step.
    assert lines[0].startswith(" ".join(("levelhead", *words)))
    for line in lines:
        assert len(line) <= 78
        program, *args = shlex.split(line)
        assert program == "levelhead"
        path = ()
        while args and (*path, args[0]) in PAGES:
            path, args = (*path, args[0]), args[1:]
        command = PAGES[path]
        assert not hasattr(command, "commands")
        values, _, _ = command.make_parser(typer.Context(command)).parse_args(args)
        missing = [option.name for option in command.params if option.required]
        assert set(missing) <= {name for name, value in values.items() if value}


def test_an_example_with_a_wrong_option_would_fail():
    command = PAGES["demo",]
    with pytest.raises(Exception, match="No such option"):
        command.make_parser(typer.Context(command)).parse_args(["--rulers"])


def test_summaries_of_commands_are_not_cut():
    for words, command in PAGES.items():
        if hasattr(command, "commands"):
            listing = page(words).partition("\nCommands:\n")[2].partition("\nExamples:")[0]
            assert "..." not in listing
            assert all(line.endswith(".") for line in listing.strip().splitlines())


def test_a_short_option_means_the_same_everywhere():
    shorts = {}
    for parameter in (parameter for words in PAGES for parameter in parameters(words)):
        for name in parameter.opts:
            if len(name) == 2:
                shorts.setdefault(name, set()).add(tuple(sorted(set(parameter.opts) - {name})))
    assert shorts == {
        "-m": {("--measure",)},
        "-o": {("--output",)},
        "-p": {("--policy",)},
        "-q": {("--quiet",)},
        "-v": {("--details", "--verbose")},
    }


def test_the_light_names_are_those_of_the_registry():
    assert sorted(MEASURE_NAMES) == sorted(MEASURES)
    assert sorted(METRIC_NAMES) == sorted(set(metric_texts()) - set(MEASURES))
