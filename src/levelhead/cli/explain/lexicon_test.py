"""`levelhead data lexicon test FILE MODEL`: what each word of a list does to a model."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.options import (
    AllowPickle,
    BatchSize,
    Device,
    Dtype,
    Json,
    Level,
    Model,
    Output,
    Revision,
)
from levelhead.cli.shared.output import told
from levelhead.cli.shared.progress import steps
from levelhead.core.run_context import Inference

if TYPE_CHECKING:
    from levelhead.explain.lexicon_effects import LexiconTest


def lexicon_test(
    file: Annotated[str, typer.Argument(help="A lexicon's TOML file, or the name of one.")],
    model: Model,
    heads: Annotated[
        str | None, typer.Option(help="A head map: attention of its positive heads only.")
    ] = None,
    targets: Annotated[
        str | None, typer.Option(help="One of its families of targets; all by default.")
    ] = None,
    groups: Annotated[
        str | None, typer.Option(help="Two of its groups, with a comma; by default the first two.")
    ] = None,
    sort: Annotated[
        str, typer.Option(help="What the targets are: any, thing, bare, adjective.")
    ] = "any",
    frames: Annotated[int, typer.Option(help="How many frames each is put into, 1 to 4.")] = 2,
    level: Level = 0.95,
    output: Output = None,
    json: Json = False,
    batch_size: BatchSize = 32,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
) -> None:
    """Try every pair and every target of a word list on a model; list those that do nothing."""
    from levelhead.cli.explain.explain import head_map, signs
    from levelhead.data.lexicons.published import any_lexicon
    from levelhead.explain.lexicon_effects import lexicon_test as tried
    from levelhead.models.loading.load import load

    words = any_lexicon(file)
    compared = words.two(groups.split(",") if groups else None)
    located = None if heads is None else head_map(heads)
    sites = None if located is None else signs(located)[0]
    lm = load(
        model,
        revision=revision,
        device=device,
        dtype=dtype,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
    )
    if located is not None:
        located.refuse_other(lm)
    with steps() as tell:
        found = tried(
            lm,
            words,
            heads=sites,
            targets=targets,
            groups=compared,
            sort=sort,  # type: ignore[arg-type]  # the frames check it
            frames=frames,
            inference=Inference(level=level),
            progress=lambda done, total: tell("texts", done, total),
        )
    told(found, lambda: _show(found), output=output, json=json)


def _show(found: LexiconTest) -> None:
    """A table of pairs and targets, and below it those for which no change is shown."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
    for what, rows in (("pair", found.pairs), ("target", found.targets)):
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in (what, "attention", "interval", "p", "margin", "interval", "p", "over"):
            left = name in (what, "interval")
            table.add_column(name, justify="left" if left else "right")
        for row in rows:
            cells = [
                cell
                for one in (row.attention, row.margin)
                for cell in (
                    ("", "", "")
                    if one is None or one.p is None
                    else (
                        f"{one.value:.4g}",
                        str(one.interval),
                        f"{one.p.value if one.p.adjusted is None else one.p.adjusted:.4f}",
                    )
                )
            ]
            table.add_row(row.word, *cells, str(row.attention.n))
        console.print(table)
    nothing = ", ".join(found.nothing) or "none"
    told = [f"no change is shown for {len(found.nothing)} words: {nothing}"]
    told += [f"{len(found.dropped)} sentences could not be read"] if found.dropped else []
    for note in (*told, "p corrected by Holm for pairs and for targets", *found.notes):
        console.print(Text(note), soft_wrap=True)
