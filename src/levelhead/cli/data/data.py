"""`levelhead data`: the data sets and lexicons, what they are, and where they lie."""

from __future__ import annotations

import textwrap
from typing import Annotated

import typer

from levelhead.cli.explain.lexicon_test import lexicon_test
from levelhead.cli.shared.exit_codes import FAIL, ExitWith
from levelhead.core.errors import LevelheadError, UnknownName

app = typer.Typer(help="Data sets and lexicons.", no_args_is_help=True, rich_markup_mode=None)
lexicons = typer.Typer(help="Word lists.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(lexicons, name="lexicon")
lexicons.command("test")(lexicon_test)

Name = Annotated[str, typer.Argument(help="A data set, by name: see `levelhead data list`.")]
Part = Annotated[str | None, typer.Option(help="One of its parts; all of them by default.")]


@app.command("list")
def list_() -> None:
    """Every data set: licence, size, what it serves, what it cannot tell, whether it is here."""
    from levelhead.data.catalog.datasets import NotHere, WrongFile, datasets

    for row in datasets().values():
        try:
            for part in row.parts:
                row.path(part)
            here = "here"
        except NotHere:
            here = row.get
        except WrongFile:
            here = "another file lies there"
        size = sum(file.bytes for file in row.files)
        count = sum(file.items for file in row.files)
        typer.echo(f"{row.name}  [{here}]  {count:,} items, {size / 1e6:.1f} MB, {row.licence}")
        for text in (f"{row.about}.", f"Serves: {row.serves}.", f"Cannot tell: {row.cannot}"):
            typer.echo(textwrap.fill(text, 92, initial_indent="    ", subsequent_indent="    "))


@app.command("get")
def get(name: Name, part: Part = None) -> None:
    """Download a data set into the cache, from its pinned revision, and check its hashes."""
    from levelhead.data.catalog.datasets import dataset

    row = dataset(name)
    typer.echo(f"{row.name}: {row.licence}")
    for one in (part,) if part else row.parts:
        typer.echo(str(row.fetched(one)))


@app.command("path")
def path(name: Name, part: Part = None) -> None:
    """Where a data set lies on this machine; exit 3 and what to put where if it does not."""
    from levelhead.data.catalog.datasets import dataset

    row = dataset(name)
    for one in (part,) if part else row.parts:
        typer.echo(str(row.path(one)))


@lexicons.command("list")
def lexicon_list() -> None:
    """Every lexicon that ships: groups, sizes, licence, what it cannot tell."""
    from levelhead.data.lexicons.lexicon import lexicon, shipped

    for name in shipped():
        found = lexicon(name)
        sizes = ", ".join(f"{group} {len(found.words(group))}" for group in found.groups)
        families = ", ".join(family.name for family in found.families)
        typer.echo(f"{name}  {sizes}; targets: {families}; {found.licence}")
        text = f"Cannot tell: {found.limits}"
        typer.echo(textwrap.fill(text, 92, initial_indent="    ", subsequent_indent="    "))


@lexicons.command("check")
def lexicon_check(
    file: Annotated[str, typer.Argument(help="A lexicon's TOML file, or the name of one.")],
    model: Annotated[
        str | None, typer.Option(help="Also name words that this model's tokenizer cuts or loses.")
    ] = None,
) -> None:
    """Find what is wrong with a word list: exit 0 if nothing is, 1 if something may be."""
    from levelhead.data.lexicons.lexicon import lexicon
    from levelhead.data.lexicons.validate import check

    tokenize = None
    if model is not None:
        from levelhead.models.loading.load import tokenize as tokens_of

        tokenize = tokens_of(model)
    flags = check(lexicon(file), tokenize=tokenize)
    for flag in flags:
        typer.echo(f"{flag.kind:<10}  {flag.word}: {flag.why}")
    typer.echo(f"{len(flags)} flags")
    if flags:
        raise ExitWith(FAIL)


@app.command("lint")
def lint_(
    name: Annotated[str, typer.Argument(help="A data set, by name, or a file of your own.")],
    part: Part = None,
    reader: Annotated[
        str | None, typer.Option(help="For a file: how it is read (twins, crows, stereoset ...).")
    ] = None,
    rule: Annotated[str | None, typer.Option(help="Only flags of this rule.")] = None,
) -> None:
    """Flag faulty items: exit 0 if there is none, 1 if there are some."""
    from collections import Counter

    from levelhead.data.catalog.datasets import dataset, file_items
    from levelhead.data.lint import RULES, has_rules, lint

    if reader is not None:
        items = list(file_items(name, reader))
    else:
        row = dataset(name)
        items = [item for one in ((part,) if part else row.parts) for item in row.items(one)]
    if rule is not None and rule not in RULES:
        raise UnknownName("rule", rule, RULES)
    if not items:
        raise LevelheadError(f"{name} holds no items", mend="check the file")
    flags = [flag for flag in lint(items) if rule in (None, flag.rule)]
    for flag in flags:
        typer.echo(f"{flag.item}  {flag.rule}  {flag.field}: {flag.seen}")
    flagged = len({flag.item for flag in flags})
    typer.echo(f"{flagged} of {len(items)} items flagged")
    if not any(map(has_rules, items)):
        typer.echo(
            "  only encoding, empty texts and duplicates are looked for in items of this kind"
        )
    for kind, count in Counter(flag.rule for flag in flags).most_common():
        typer.echo(f"  {count:>5}  {kind}")
    if flags:
        raise ExitWith(FAIL)
