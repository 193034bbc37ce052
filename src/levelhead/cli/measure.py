"""`levelhead measure MODEL -m NAME ...`: numbers with intervals, for people and for machines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.model_options import is_served, opened
from levelhead.cli.shared.options import (
    AllowPickle,
    BatchSize,
    Device,
    Draws,
    Dtype,
    Json,
    Level,
    ModelOrServer,
    Output,
    Revision,
)
from levelhead.cli.shared.progress import progress
from levelhead.core.run_context import Inference, RunContext

if TYPE_CHECKING:
    from rich.console import Console

    from levelhead.core.results import Estimate, Measurement
    from levelhead.measures.base import Measure
    from levelhead.measures.robustness.multiverse import Multiverse
    from levelhead.measures.run import Measured

BASE = "base"


def measure(
    model: ModelOrServer = "",
    measures: Annotated[
        list[str] | None,
        typer.Option(
            "--measure",
            "-m",
            help="A measure, by name, with options if wanted: strength:part=dev,top=0.2.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Your texts for counterfactual: a .csv, .tsv or .jsonl file."),
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="Their column of texts; by default `text`.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="Their column of labels.")] = None,
    lexicon: Annotated[
        str | None, typer.Option(help="Whose words are exchanged in them; by default gender-en.")
    ] = None,
    edit: Annotated[str | None, typer.Option(help="A folder that save_edits wrote.")] = None,
    against: Annotated[
        str | None,
        typer.Option(help="Another model, paired item by item; `base`: this one without the edit."),
    ] = None,
    output: Output = None,
    json: Json = False,
    details: Annotated[
        bool, typer.Option("--details", help="Show what stands beside each number.")
    ] = False,
    multiverse: Annotated[
        bool,
        typer.Option(
            "--multiverse",
            help="Repeat each measure with its templates, words, layers and pooling varied.",
        ),
    ] = False,
    show: Annotated[bool, typer.Option("--list", help="List the measures and stop.")] = False,
    seed: Annotated[int, typer.Option(help="Of resamples and permutations.")] = 0,
    draws: Draws = 1999,
    permutations: Annotated[int, typer.Option(help="Rearrangements for a p-value.")] = 9999,
    level: Level = 0.95,
    store: Annotated[
        str | None,
        typer.Option(help="Where readouts are kept; by default in the cache, a server's nowhere."),
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads of numpy and torch.")] = 1,
    batch_size: BatchSize = 32,
    bos: Annotated[
        str, typer.Option(help="A beginning token before every text: auto, always, tokenizer.")
    ] = "auto",
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
) -> None:
    """Measure a model by one or more rulers.

    What was read is kept: another seed, level or option of a formula runs no forward. Exit 3 if
    anything could not be measured; nothing stands in for a missing number.
    """
    from levelhead.measures.run import run, with_skills
    from levelhead.models.loading.load import cache_folder, load

    if show:
        _list_measures()
        return
    if not model or not measures:
        raise typer.BadParameter("name a model and at least one measure: levelhead measure --list")
    given = {"texts": data, "text": text, "label": label, "lexicon": lexicon}
    wanted = _wanted(measures, {name: value for name, value in given.items() if value})
    inference = Inference(seed=seed, resamples=draws, permutations=permutations, level=level)
    lm = opened(
        model,
        revision=revision,
        device=device,
        dtype=dtype,
        edit=edit,
        bos=bos,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
    )
    other = None
    if against == BASE:
        from dataclasses import replace

        other = replace(lm, edits=())
    elif against is not None:
        other = load(
            against,
            device=device,
            dtype=dtype,
            bos=bos,  # type: ignore[arg-type]
            allow_pickle=allow_pickle,
            batch_size=batch_size,
        )
    # A server may change its weights without a word: nothing it said is kept unasked.
    kept = store or (None if is_served(model) else str(cache_folder().parent / "readouts"))
    with progress("questions") as on_event:
        found = run(
            lm,
            wanted,
            against=other,
            inference=inference,
            context=RunContext(store=kept, threads=threads, progress=on_event),
        )
    if other is not None:
        checked = with_skills(
            lm, wanted, found.measurements, context=RunContext(store=kept, threads=threads)
        )
        found = found._replace(measurements=checked)
    universes: list[Multiverse] = []
    if multiverse:
        from levelhead.measures.robustness import multiverse as varied

        with progress("questions") as on_event:
            universes = [
                varied.multiverse(
                    lm,
                    one,
                    inference=inference,
                    context=RunContext(store=kept, threads=threads, progress=on_event),
                )
                for one in wanted
            ]
    text = _json(found, universes)
    if output is not None:
        from levelhead.core.files import write_atomic

        write_atomic(output, text.encode())
    if json:
        typer.echo(text, nl=False)
    else:
        from levelhead.measures.base import UNFLAGGED

        always = {aspect.name for one in wanted for aspect in one.aspects[1:]} | {UNFLAGGED}
        whole = {one.name for one in wanted if one.tells_all}
        _show(found, always, whole, details=details)
        _show_universes(universes, details=details)


def _list_measures() -> None:
    """Every metric, as -m names it."""
    from levelhead.measures.registry import MEASURES, is_utility, metric_texts

    texts = metric_texts()
    for make in MEASURES.values():
        for metric, about in make.metrics.items():
            price = "price: " if is_utility(texts[metric]) else ""
            typer.echo(f"{texts[metric]:<33} {price}{about} ({' or '.join(make.needs)})")


def _wanted(measures: list[str], own: dict[str, str]) -> list[Measure]:
    """The measures that were named; the user's texts go to counterfactual."""
    from levelhead.measures.classification.counterfactual import Counterfactual
    from levelhead.measures.registry import parsed_all

    found = [one for name in measures for one in parsed_all(name, own)]
    swapped = [one for one in found if isinstance(one, Counterfactual)]
    if own and not swapped:
        named = ", ".join(f"--{'data' if name == 'texts' else name}" for name in own)
        raise typer.BadParameter(f"{named}: for -m counterfactual, which is not asked for")
    if not all(one.texts for one in swapped):
        raise typer.BadParameter("counterfactual needs your texts: --data FILE --text COLUMN")
    return found


def _json(found: Measured, universes: list[Multiverse]) -> str:
    from levelhead.core.canonical_json import canonical

    told = {
        "measurements": [one.model_dump() for one in found.measurements],
        "comparisons": [one.model_dump() for one in found.comparisons],
    }
    if universes:
        told["multiverses"] = [one.model_dump() for one in universes]
    return canonical(told).decode() + "\n"


def _show(found: Measured, always: set[str], whole: set[str], *, details: bool) -> None:
    """A table; numbers beside that are `always` shown, and measures shown `whole`."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from levelhead.core.calibration import MISSED, mark_of, marked

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("measure", "value", "interval", "parity", "p", "n", "detectable"):
        table.add_column(name, justify="left" if name in ("measure", "interval") else "right")
    for one in found.measurements:
        table.add_row(marked(_named(one), one), *cells(one), style="bold" if details else "")
        for beside in one.beside:
            if details or one.measure in whole or beside.name in always:
                table.add_row(f"  {marked(beside.name, one, beside.name)}", *cells(beside))
    console.print(table)
    for text in _verdicts(found):
        console.print(Text(text), soft_wrap=True)
    for one in found.measurements:
        for note in one.notes:
            console.print(Text(f"{_named(one)}: {note}"), soft_wrap=True)
    if any(mark_of(one) for one in found.measurements):
        console.print(Text(MISSED))
    _compare(console, found)
    if any(one.p is not None and one.p.adjusted is not None for one in found.measurements):
        console.print(Text("p corrected by Holm for the measures of this run"))


def _verdicts(found: Measured) -> list[str]:
    """What each measurement says of bias, and whether the model can do what it asks."""
    from levelhead.core.verdicts import measure_verdict

    lines = []
    for one in found.measurements:
        verdict = measure_verdict(one)
        if verdict.status != "no test":
            lines.append(f"{_named(one)}: verdict: {verdict}")
        if one.skill is not None:
            lines.append(f"{_named(one)}: skill: {one.skill}")
    return lines


def _show_universes(universes: list[Multiverse], *, details: bool) -> None:
    """What became of each conclusion when choices were made otherwise."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from levelhead.core.calibration import MISSED, mark_of, marked

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
    for universe in universes:
        named = marked(_named(universe), universe.measured_by)
        console.print(Text(f"multiverse of {named}: {universe}"), soft_wrap=True)
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("specification", "value", "interval", "p", "n", "conclusion"):
            left = name in ("specification", "interval", "conclusion")
            table.add_column(name, justify="left" if left else "right")
        for one in universe.specifications if details else ():
            p = "" if one.p is None else _p(one.p.value)
            cells = (f"{one.value:.4g}", str(one.interval), p, str(one.n), one.conclusion or "")
            table.add_row(f"  {one.name}", *cells)
        for name, why in universe.failed:
            table.add_row(f"  {name}", "", "", "", "", why)
        if table.row_count:
            console.print(table)
        if mark_of(universe.measured_by):
            console.print(Text(MISSED))


def _named(one: Measurement | Multiverse) -> str:
    """A measure, and whom it compares if one may choose."""
    return f"{one.measure} ({', '.join(one.groups)})" if one.groups else one.measure


def _compare(console: Console, found: Measured) -> None:
    """The comparisons, if there are any."""
    from rich.table import Table
    from rich.text import Text

    if not found.comparisons:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("second less first", "value", "interval", "parity", "p", "n", "detectable"):
        table.add_column(name, justify="left" if name in ("interval",) else "right")
    table.columns[0].justify = "left"
    for one in found.comparisons:
        for difference in (one.difference, *one.beside):
            table.add_row(f"{difference.name} {one.mark}".rstrip(), *cells(difference))
    console.print(table)
    for one in found.comparisons:
        console.print(Text(str(one)), soft_wrap=True)
        for note in one.notes:
            console.print(Text(f"{one.measure}: {note}"), soft_wrap=True)


def cells(one: Measurement | Estimate) -> tuple[str, ...]:
    """A row of a table of numbers, after its name."""
    p = "" if one.p is None else _p(one.p.value if one.p.adjusted is None else one.p.adjusted)
    dropped = getattr(one, "dropped", ())
    n = f"{one.n} of {one.n + len(dropped)}" if dropped else str(one.n)
    return (
        f"{one.value:.4g}",
        str(one.interval),
        "" if one.parity is None else f"{one.parity:.4g}",
        p,
        n,
        "" if one.detectable is None else f"{one.detectable:.3g}",
    )


def _p(value: float) -> str:
    return "< .0001" if value < 1e-4 else f"{value:.4f}".lstrip("0") if value < 1 else "1"
