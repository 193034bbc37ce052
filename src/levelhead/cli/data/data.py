"""`levelhead data`: list, download and check data sets and lexicons."""

from __future__ import annotations

import textwrap
from typing import Annotated

import typer

from levelhead.cli.data.mine import mine_command
from levelhead.cli.explain.lexicon_test import lexicon_test_command
from levelhead.cli.shared.exit_codes import FAIL, ExitWithCode
from levelhead.cli.shared.help_pages import Group, Panel, ResumableCommand, add_command
from levelhead.core.errors import LevelheadError, UnknownNameError

app = typer.Typer(
    cls=Group,
    help="List, download and check data sets and lexicons.",
    epilog="levelhead data list\nlevelhead data get crows-pairs",
    no_args_is_help=True,
    rich_markup_mode=None,
)
lexicons = typer.Typer(
    cls=Group,
    help="List, check and test lexicons.",
    epilog="levelhead data lexicon list\nlevelhead data lexicon check words.toml",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of a data set: see `levelhead data list`.")
]
Part = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=Panel.DATA,
        help="Part of the data set; all parts by default.",
    ),
]


def list_datasets_command(
    language: Annotated[
        str | None,
        typer.Option(
            metavar="CODE",
            rich_help_panel=Panel.DATA,
            help="Only data in a language, such as fr; with what cannot be measured in it.",
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            rich_help_panel=Panel.DATA,
            help="Only data about groups whose description has a word, such as religion.",
        ),
    ] = None,
) -> None:
    """List the data sets, their licences, sizes and limits.

    Each entry says what the data set is used for, and whether it is on this machine.
    """
    from levelhead.data.catalog.datasets import ChecksumError, DatasetMissingError, datasets

    names = set(datasets()) if language is None else _datasets_in(language)
    rows = [row for row in datasets().values() if row.name in names]
    if groups is not None:
        word = groups.casefold()
        # Parts name groups, too: those of BBQ are its categories.
        rows = [
            row
            for row in rows
            if any(word in text.casefold() for text in (row.about, row.serves, *row.parts))
        ]
        _list_lexicons_about(word, language)
    for row in rows:
        try:
            for part in row.parts:
                row.path(part)
            status = "here"
        except DatasetMissingError:
            status = "manual download" if row.get == "own copy" else row.get
        except ChecksumError:
            status = "another file is in its place"
        size = sum(file.bytes for file in row.files)
        count = sum(file.items for file in row.files)
        typer.echo(f"{row.name}  [{status}]  {count:,} items, {size / 1e6:.1f} MB, {row.licence}")
        texts = [f"{row.about}.", f"Used for: {row.serves}.", f"Limitations: {row.cannot}"]
        if row.get == "own copy":
            texts.append(f"Get it: {row.note}.")
        for text in texts:
            typer.echo(textwrap.fill(text, 92, initial_indent="    ", subsequent_indent="    "))


def _datasets_in(code: str) -> set[str]:
    """Names of the data sets in a language, which is described first."""
    from levelhead.data.catalog.datasets import datasets
    from levelhead.data.languages.language import language

    row = language(code)
    about = f"{row.name}: grammatical gender of {row.grammatical_gender}. {row.cannot}"
    typer.echo(textwrap.fill(about, 96))
    # Some data sets are for reading only: no measure names them, and their parts are languages.
    others = {entry.name for entry in datasets().values() if row.code in entry.parts}
    return others | {text.partition(":")[0] for _, text in row.data}


def _list_lexicons_about(word: str, code: str | None) -> None:
    from levelhead.data.lexicons.lexicon import lexicon, list_shipped_lexicons

    for name in list_shipped_lexicons():
        words = lexicon(name)
        if word in f"{name} {' '.join(words.groups)}" and code in (None, words.language):
            typer.echo(f"{name}  [lexicon]  {', '.join(words.groups)}; {words.licence}")


def get_dataset_command(name: Name, part: Part = None) -> None:
    """Download a data set into the cache and check its hashes.

    The revision is pinned: another one could change the numbers.
    """
    from levelhead.data.catalog.datasets import dataset

    row = dataset(name)
    # The licence is shown before anything is downloaded.
    typer.echo(f"{row.name}: {row.licence}")
    for part_name in (part,) if part else row.parts:
        typer.echo(str(row.ensure_local(part_name)))


def dataset_path_command(name: Name, part: Part = None) -> None:
    """Print the path of a data set on this machine.

    Exit 3 if it is not there; the message says which file to put where.
    """
    from levelhead.data.catalog.datasets import dataset

    row = dataset(name)
    for part_name in (part,) if part else row.parts:
        typer.echo(str(row.path(part_name)))


def list_lexicons_command() -> None:
    """List the shipped lexicons: groups, sizes, licence, limits."""
    from levelhead.data.lexicons.lexicon import lexicon, list_shipped_lexicons

    for name in list_shipped_lexicons():
        word_lists = lexicon(name)
        sizes = ", ".join(f"{group} {len(word_lists.words(group))}" for group in word_lists.groups)
        families = ", ".join(family.name for family in word_lists.families)
        typer.echo(f"{name}  {sizes}; targets: {families}; {word_lists.licence}")
        text = f"Limitations: {word_lists.limits}"
        typer.echo(textwrap.fill(text, 92, initial_indent="    ", subsequent_indent="    "))


def check_lexicon_command(
    files: Annotated[
        list[str], typer.Argument(metavar="LEXICON", help="Names or TOML files of lexicons.")
    ],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            rich_help_panel=Panel.MODEL,
            help="Model whose tokenizer is checked, too: words that it splits or lacks are listed.",
        ),
    ] = None,
) -> None:
    """Check a lexicon for problems.

    Exit 0 if no problem is detected, 1 if there may be problems.
    """
    from levelhead.data.lexicons.lexicon import lexicon
    from levelhead.data.lexicons.validate import check_lexicon

    tokenize = None
    if model is not None:
        # The tokenizer alone: checking words needs no weights, which may be gigabytes.
        from levelhead.models.loading.load import load_word_tokenizer

        tokenize = load_word_tokenizer(model)
    n_flags = 0
    for file in files:
        flags = check_lexicon(lexicon(file), tokenize=tokenize)
        if len(files) > 1:
            typer.echo(f"{file}:")
        for flag in flags:
            typer.echo(f"{flag.kind:<10}  {flag.word}: {flag.problem}")
        typer.echo(f"{len(flags)} flags")
        n_flags += len(flags)
    if n_flags:
        raise ExitWithCode(FAIL)


def lint_command(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME", help="Names of data sets, or paths of files.")
    ],
    part: Part = None,
    reader: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            rich_help_panel=Panel.DATA,
            help="Format of your file: twins, crows, stereoset or another reader's name.",
        ),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.OUTPUT,
            help="Rule whose flags are shown; all rules by default.",
        ),
    ] = None,
) -> None:
    """Flag faulty items of data sets.

    Exit 0 if no item is flagged, 1 if an item is flagged.
    """
    from levelhead.data.lint import LINT_RULES

    if rule is not None and rule not in LINT_RULES:
        raise UnknownNameError("rule", rule, LINT_RULES)
    n_flagged = 0
    for name in names:
        if len(names) > 1:
            typer.echo(f"{name}:")
        n_flagged += _lint(name, part, reader, rule)
    if n_flagged:
        raise ExitWithCode(FAIL)


def _lint(name: str, part: str | None, reader: str | None, rule: str | None) -> int:
    """Print the flags of a data set; return the number of flagged items."""
    from collections import Counter

    from levelhead.data.catalog.datasets import dataset, read_file_items
    from levelhead.data.lint import has_lint_rules, lint

    if reader is not None:
        items = list(read_file_items(name, reader))
    else:
        row = dataset(name)
        items = [
            item for part_name in ((part,) if part else row.parts) for item in row.items(part_name)
        ]
    # No item has no flag: an empty file would pass as one without faults.
    if not items:
        raise LevelheadError(f"{name} has no items", hint="check the file")
    flags = [flag for flag in lint(items) if rule in (None, flag.rule)]
    for flag in flags:
        typer.echo(f"{flag.item}  {flag.rule}  {flag.field}: {flag.evidence}")
    n_flagged = len({flag.item for flag in flags})
    typer.echo(f"{n_flagged} of {len(items)} items flagged")
    if not any(map(has_lint_rules, items)):
        typer.echo("  items of this kind are only checked for encoding, empty texts and duplicates")
    for kind, count in Counter(flag.rule for flag in flags).most_common():
        typer.echo(f"  {count:>5}  {kind}")
    return n_flagged


add_command(app, "list", list_datasets_command, "levelhead data list")
add_command(
    app,
    "get",
    get_dataset_command,
    "levelhead data get crows-pairs",
    "levelhead data get stereoset --part intrasentence",
)
add_command(app, "path", dataset_path_command, "levelhead data path crows-pairs")
add_command(
    app,
    "lint",
    lint_command,
    "levelhead data lint crows-pairs",
    "levelhead data lint pairs.jsonl --format twins",
)
add_command(
    app,
    "mine",
    mine_command,
    "levelhead data mine corpus.txt -o pairs",
    "levelhead data mine 'texts/*.parquet' -o pairs --quota 50 --workers 4",
    command_class=ResumableCommand,
)
add_command(lexicons, "list", list_lexicons_command, "levelhead data lexicon list")
add_command(
    lexicons,
    "check",
    check_lexicon_command,
    "levelhead data lexicon check gender-en --model bert-base-uncased",
)
add_command(
    lexicons,
    "test",
    lexicon_test_command,
    "levelhead data lexicon test gender-en bert-base-uncased",
    "levelhead data lexicon test words.toml bert-base-uncased --heads heads.json",
)
app.add_typer(lexicons, name="lexicon")
