"""`levelhead data`: list, download and check data sets and lexicons."""

from __future__ import annotations

import textwrap
from typing import Annotated

import typer

from levelhead.cli.data.mine import mine_command
from levelhead.cli.explain.lexicon_test import lexicon_test_command
from levelhead.cli.shared.exit_codes import FAIL, ExitWithCode
from levelhead.core.errors import LevelheadError, UnknownNameError

app = typer.Typer(
    help="List, download and check data sets and lexicons.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
lexicons = typer.Typer(
    help="List, check and test lexicons.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(lexicons, name="lexicon")
app.command("mine")(mine_command)
lexicons.command("test")(lexicon_test_command)

Name = Annotated[str, typer.Argument(help="Name of a data set: see `levelhead data list`.")]
Part = Annotated[str | None, typer.Option(help="One part of the data set; all by default.")]


@app.command("list")
def list_datasets_command() -> None:
    """List the data sets, their licences, sizes and limits.

    Also says what each is used for, and whether it is on this machine.
    """
    from levelhead.data.catalog.datasets import ChecksumError, DatasetMissingError, datasets

    for row in datasets().values():
        try:
            for part in row.parts:
                row.path(part)
            status = "here"
        except DatasetMissingError:
            status = row.get
        except ChecksumError:
            status = "another file is in its place"
        size = sum(file.bytes for file in row.files)
        count = sum(file.items for file in row.files)
        typer.echo(f"{row.name}  [{status}]  {count:,} items, {size / 1e6:.1f} MB, {row.licence}")
        for text in (f"{row.about}.", f"Used for: {row.serves}.", f"Cannot show: {row.cannot}"):
            typer.echo(textwrap.fill(text, 92, initial_indent="    ", subsequent_indent="    "))


@app.command("get")
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


@app.command("path")
def dataset_path_command(name: Name, part: Part = None) -> None:
    """Print the path of a data set on this machine.

    Exit 3 if it is not there; the message says which file to put where.
    """
    from levelhead.data.catalog.datasets import dataset

    row = dataset(name)
    for part_name in (part,) if part else row.parts:
        typer.echo(str(row.path(part_name)))


@lexicons.command("list")
def list_lexicons_command() -> None:
    """List the shipped lexicons: groups, sizes, licence, limits."""
    from levelhead.data.lexicons.lexicon import lexicon, list_shipped_lexicons

    for name in list_shipped_lexicons():
        word_lists = lexicon(name)
        sizes = ", ".join(f"{group} {len(word_lists.words(group))}" for group in word_lists.groups)
        families = ", ".join(family.name for family in word_lists.families)
        typer.echo(f"{name}  {sizes}; targets: {families}; {word_lists.licence}")
        text = f"Cannot show: {word_lists.limits}"
        typer.echo(textwrap.fill(text, 92, initial_indent="    ", subsequent_indent="    "))


@lexicons.command("check")
def check_lexicon_command(
    file: Annotated[str, typer.Argument(help="Name or TOML file of a lexicon.")],
    model: Annotated[
        str | None,
        typer.Option(help="Also list the words that this model's tokenizer splits or lacks."),
    ] = None,
) -> None:
    """Check a lexicon for problems.

    Exit 0 if there is none, 1 if there may be some.
    """
    from levelhead.data.lexicons.lexicon import lexicon
    from levelhead.data.lexicons.validate import check_lexicon

    tokenize = None
    if model is not None:
        # The tokenizer alone: checking words needs no weights, which may be gigabytes.
        from levelhead.models.loading.load import load_word_tokenizer

        tokenize = load_word_tokenizer(model)
    flags = check_lexicon(lexicon(file), tokenize=tokenize)
    for flag in flags:
        typer.echo(f"{flag.kind:<10}  {flag.word}: {flag.problem}")
    typer.echo(f"{len(flags)} flags")
    if flags:
        raise ExitWithCode(FAIL)


@app.command("lint")
def lint_command(
    name: Annotated[str, typer.Argument(help="Name of a data set, or path of the user's file.")],
    part: Part = None,
    reader: Annotated[
        str | None, typer.Option(help="Format of the user's file: twins, crows, stereoset ...")
    ] = None,
    rule: Annotated[str | None, typer.Option(help="Show the flags of this rule only.")] = None,
) -> None:
    """Flag faulty items of a data set.

    Exit 0 if there is none, 1 if there are some.
    """
    from collections import Counter

    from levelhead.data.catalog.datasets import dataset, read_file_items
    from levelhead.data.lint import LINT_RULES, has_lint_rules, lint

    if reader is not None:
        items = list(read_file_items(name, reader))
    else:
        row = dataset(name)
        items = [
            item for part_name in ((part,) if part else row.parts) for item in row.items(part_name)
        ]
    if rule is not None and rule not in LINT_RULES:
        raise UnknownNameError("rule", rule, LINT_RULES)
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
    if flags:
        raise ExitWithCode(FAIL)
