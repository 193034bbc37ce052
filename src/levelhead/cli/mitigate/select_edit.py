"""`levelhead tune MODEL --dev FILE --test FILE`: an edit chosen on your own task."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.exit_codes import INCONCLUSIVE, ExitWith
from levelhead.cli.shared.options import (
    AllowPickle,
    BatchSize,
    Device,
    Draws,
    Dtype,
    Json,
    Level,
    Model,
    Revision,
    to_write,
)
from levelhead.cli.shared.progress import progress
from levelhead.core.run_context import Inference, RunContext

if TYPE_CHECKING:
    from rich.table import Table

    from levelhead.core.results import Estimate
    from levelhead.mitigate.selection.selection_report import Tried, Tuned

WHY, README = "why.json", "README.md"
FIRST = 12
"""Candidates that are shown, unless all are wanted."""


def tune(
    model: Model,
    dev: Annotated[str, typer.Option(help="Rows on which the edit is chosen: .csv, .tsv, .jsonl.")],
    test: Annotated[str, typer.Option(help="Other rows, on which it is reported once.")],
    gain: Annotated[
        str, typer.Option(help="counterfactual, counterfactual_shift, fairness or strength.")
    ] = "counterfactual",
    price: Annotated[str, typer.Option(help="What is paid: accuracy.")] = "accuracy",
    keep: Annotated[
        float, typer.Option(help="The share of the accuracy that must be kept.")
    ] = 0.95,
    most: Annotated[
        float | None, typer.Option(help="Instead: points of accuracy that may be lost.")
    ] = None,
    text: Annotated[str, typer.Option(help="The column of texts, for counterfactual.")] = "text",
    label: Annotated[str, typer.Option(help="The column of labels, for counterfactual.")] = "label",
    labels: Annotated[
        str | None,
        typer.Option(help="Your names of the classes, in the order of the model's, with commas."),
    ] = None,
    lexicon: Annotated[
        str, typer.Option(help="A lexicon's name or TOML file: whose words are exchanged.")
    ] = "gender-en",
    groups: Annotated[
        str | None, typer.Option(help="Two of its groups, with a comma; by default the first two.")
    ] = None,
    control: Annotated[
        bool,
        typer.Option(
            "--control/--no-control",
            help="Count flips beyond those of placebo twins, or all that there are.",
        ),
    ] = True,
    trim: Annotated[
        bool,
        typer.Option(
            "--trim/--no-trim", help="Leave out settings that the paper found not worth trying."
        ),
    ] = True,
    by: Annotated[str, typer.Option(help="How heads are ranked: gradient or ablation.")] = (
        "gradient"
    ),
    n: Annotated[
        int | None,
        typer.Option(help="How many pairs of texts in frames; fewer leave words for `removed`."),
    ] = None,
    pairs: Annotated[
        str,
        typer.Option(help="Subspaces are fitted on the lexicon's words in frames, or on dev."),
    ] = "frames",
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="A new folder for the edit, if there is one."),
    ] = None,
    why: Annotated[
        str | None,
        typer.Option(
            callback=to_write, help="Write all that was found as JSON to this file, edit or not."
        ),
    ] = None,
    json: Json = False,
    details: Annotated[bool, typer.Option("--details", help="Show every candidate.")] = False,
    seed: Annotated[int, typer.Option(help="Of resamples.")] = 0,
    draws: Draws = 1999,
    level: Level = 0.95,
    store: Annotated[
        str | None, typer.Option(help="Where readouts are kept; by default in the cache.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads of numpy and torch.")] = 1,
    batch_size: BatchSize = 32,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
) -> None:
    """Choose an edit for your task by its bounds on dev, and report it once on test.

    Projections and masks of heads are tried. Exit 2, and no edit written, if none is shown to gain
    within the price on dev and again on test.
    """
    from pathlib import Path

    from levelhead.core.files import write_atomic
    from levelhead.mitigate.selection.select_edit import tune as tuned
    from levelhead.models.edits.files import Origin, save_edits
    from levelhead.models.export.save import new_folder
    from levelhead.models.loading.load import cache_folder, load

    if output is not None:
        new_folder(Path(output))
    inference = Inference(seed=seed, resamples=draws, level=level)
    lm = load(
        model,
        revision=revision,
        device=device,
        dtype=dtype,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
    )
    with progress("questions") as on_event:
        told, edits = tuned(
            lm,
            dev,
            test,
            gain=gain,  # type: ignore[arg-type]  # tune() checks all of these
            price=price,  # type: ignore[arg-type]
            keep=keep,
            most=most,
            text=text,
            label=label,
            labels=labels.split(",") if labels else None,
            lexicon=lexicon,
            groups=_two(groups),
            control=control,
            trim=trim,
            by=by,  # type: ignore[arg-type]
            n=n,
            pairs=pairs,  # type: ignore[arg-type]
            inference=inference,
            context=RunContext(
                store=store or str(cache_folder().parent / "readouts"),
                threads=threads,
                progress=on_event,
            ),
        )
    whole = told.to_json() + "\n"
    if why is not None:
        write_atomic(why, whole.encode())
    if json:
        typer.echo(whole, nl=False)
    else:
        _show(told, details=details)
    if not told.recommended:
        raise ExitWith(INCONCLUSIVE)
    if output is not None:
        # The edit comes last: a folder without it is never read as one.
        write_atomic(str(Path(output, WHY)), whole.encode())
        write_atomic(str(Path(output, README)), readme(told).encode())
        origin = Origin.of(lm, setting=told.chosen, lexicon=Path(lexicon).name, told_in=WHY)
        save_edits(edits, output, seen=told.seen, origin=origin)
        typer.echo(f"{output}: {told.chosen} of {lm.identity.name}", err=json)


def _two(groups: str | None) -> tuple[str, str] | None:
    if groups is None:
        return None
    names = tuple(groups.split(","))
    if len(names) != 2:
        raise typer.BadParameter("--groups names two groups, with a comma between them")
    return names


def readme(told: Tuned) -> str:
    """The page that goes along with an edit: why this one, and what was not shown."""
    from levelhead.core.calibration import marked

    by = told.measured_by
    lines = [
        f"# {told.chosen}: an edit of {told.provenance.model}",
        "",
        f"{told.why[0].upper()}{told.why[1:]}.",
        "",
        *(f"- {line}" for line in _numbers(told)),
        "",
        "Not shown:",
        "",
        *(f"- {one}" for one in told.not_shown),
        *(f"- {one}" for one in told.notes),
        "",
        "## Candidates on dev",
        "",
        f"| candidate | what | {marked('gain', by)} | lower bound | loss | why not |",
        "|---|---|---|---|---|---|",
        *(
            f"| {' | '.join((own.name, own.about, *_cells(own), own.why_not))} |"
            for own in told.tried
        ),
        "",
        f"Not tried: {len(told.trimmed)} settings (Dawkins et al. 2024, section 5).",
        f"All numbers, hashes and what was dropped: {WHY}.",
    ]
    return "\n".join(lines) + "\n"


def _numbers(told: Tuned) -> list[str]:
    """Base, gain and price, in lines; whether the ruler failed where the truth is known."""
    from levelhead.core.calibration import MISSED, mark_of

    lost = ", ".join(f"{what} {len(rows)}" for what, rows in told.dropped if rows)
    found = [
        f"before, on dev: {told.base}; {told.base_price}",
        f"may be paid: {told.most:.4g} of {told.price}"
        + ("" if told.keep is None else f" (keep {told.keep:g})"),
        f"dropped: {lost or 'nothing'}",
    ]
    if told.on_test is not None:
        gain, loss = told.on_test.gain, told.on_test.loss
        found.append(f"on test: {_told(gain)}; {_told(loss)}")
    if mark_of(told.measured_by):
        found.append(f"{told.gain} {MISSED}")
    return found


def _told(estimate: Estimate | None) -> str:
    return "no change" if estimate is None else str(estimate)


def _cells(own: Tried) -> tuple[str, str, str]:
    return (
        "" if own.gain is None else f"{own.gain.value:.4g} {own.gain.interval}",
        "" if own.low is None else f"{own.low:.4g}",
        "" if own.loss is None else f"{own.loss.value:.4g} {own.loss.interval}",
    )


def _show(told: Tuned, *, details: bool) -> None:
    """The candidates with the largest bounds, or all; and what a reader must know."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 130)
    console.print(_table(told, details=details))
    missing = [f"not shown: {one}" for one in told.not_shown] if told.recommended else []
    for line in (*_numbers(told), told.why, *missing, *told.notes):
        console.print(Text(line), soft_wrap=True)


def _table(told: Tuned, *, details: bool) -> Table:
    from rich.table import Table

    from levelhead.core.calibration import marked

    table = Table(box=None, pad_edge=False, header_style="bold")
    gain = marked("gain on dev", told.measured_by)
    for name in ("candidate", gain, "lower bound", "loss on dev", "why not"):
        table.add_column(name, justify="right" if name == "lower bound" else "left")
    ranked = sorted(told.tried, key=lambda own: -float("inf") if own.low is None else own.low)
    ranked.reverse()
    for own in ranked if details else ranked[:FIRST]:
        table.add_row(own.name, *_cells(own), own.why_not)
    if len(ranked) > FIRST and not details:
        table.add_row(f"... {len(ranked) - FIRST} more", "", "", "", "")
    return table
