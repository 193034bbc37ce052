"""`levelhead measure MODEL -m NAME ...`: print measurements as tables or as JSON."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from levelhead.cli.shared.model_options import is_http, open_model
from levelhead.cli.shared.options import (
    AllowPickle,
    BatchSize,
    Device,
    DryRun,
    Dtype,
    Json,
    Level,
    ModelOrServer,
    Output,
    Resamples,
    Revision,
)
from levelhead.cli.shared.progress import show_progress
from levelhead.core.run_context import Inference, RunContext

if TYPE_CHECKING:
    from rich.console import Console

    from levelhead.core.results import Estimate, Measurement
    from levelhead.measures.base import Measure
    from levelhead.measures.robustness.multiverse import Multiverse
    from levelhead.measures.run import MeasureRun
    from levelhead.models.lm import LM

BASE = "base"


def measure_command(
    model: ModelOrServer = "",
    measures: Annotated[
        list[str] | None,
        typer.Option(
            "--measure",
            "-m",
            help="Name of a measure, with options: strength:part=dev,top=0.2. Repeat for more.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="File of texts for counterfactual: .csv, .tsv or .jsonl."),
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="Column of the texts in --data; `text` by default.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="Column of the labels in --data.")] = None,
    lexicon: Annotated[
        str | None,
        typer.Option(
            help="Lexicon whose words are exchanged in the texts of --data; gender-en by default."
        ),
    ] = None,
    edit: Annotated[
        str | None, typer.Option(help="Folder of an edit that save_edits wrote.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Model to compare with, paired item by item; base is this model without the edit."
        ),
    ] = None,
    output: Output = None,
    json: Json = False,
    details: Annotated[
        bool, typer.Option("--details", help="Show the additional numbers of each measure.")
    ] = False,
    multiverse: Annotated[
        bool,
        typer.Option(
            "--multiverse",
            help="Repeat each measure with other templates, words, layers and pooling.",
        ),
    ] = False,
    agreement: Annotated[
        list[str] | None,
        typer.Option(
            help="Correlate measures instead, over the models or edits whose results are in this "
            "file or folder (written by -o), or in the columns of a .csv table that -m names. "
            "Repeat for more."
        ),
    ] = None,
    dry_run: DryRun = False,
    show: Annotated[bool, typer.Option("--list", help="List the measures and exit.")] = False,
    seed: Annotated[int, typer.Option(help="Random seed of resamples and permutations.")] = 0,
    resamples: Resamples = 1999,
    permutations: Annotated[int, typer.Option(help="Number of permutations for a p-value.")] = 9999,
    level: Level = 0.95,
    store: Annotated[
        str | None,
        typer.Option(
            help="Folder that stores responses; the cache by default, and none for a server."
        ),
    ] = None,
    threads: Annotated[int, typer.Option(help="Number of threads of NumPy and PyTorch.")] = 1,
    batch_size: BatchSize = 32,
    bos: Annotated[
        str,
        typer.Option(help="When to put a BOS token before a text: auto, always, tokenizer."),
    ] = "auto",
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
) -> None:
    """Measure a model with one or more measures.

    Responses are cached: another seed, level or option of a formula needs no forward pass. With
    --agreement and no model, prints the rank correlations of measures over models or edits. Exit 3
    if anything could not be measured; no value is substituted for a missing number.
    """
    from levelhead.models.loading.load import model_cache_folder

    if show:
        _list_measures()
        return
    if agreement:
        from levelhead.cli.shared.agreement import show_agreement

        if model:
            raise typer.BadParameter("--agreement reads results: name no model")
        show_agreement(agreement, measures or (), level=level, output=output, json=json)
        return
    if not model or not measures:
        raise typer.BadParameter("name a model and at least one measure: levelhead measure --list")
    user_options = {"texts": data, "text": text, "label": label, "lexicon": lexicon}
    parsed_measures = _parse_measures(
        measures, {name: value for name, value in user_options.items() if value}
    )
    inference = Inference(seed=seed, resamples=resamples, permutations=permutations, level=level)
    lm = open_model(
        model,
        revision=revision,
        device=device,
        dtype=dtype,
        edit=edit,
        bos=bos,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
    )
    other_lm = _load_other(
        lm,
        against,
        device=device,
        dtype=dtype,
        bos=bos,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
    )
    # A server may change its weights without notice: its responses are stored on request only.
    readout_store = store or (
        None if is_http(model) else str(model_cache_folder().parent / "readouts")
    )
    context = RunContext(store=readout_store, threads=threads)
    if dry_run:
        if multiverse:
            raise typer.BadParameter("--dry-run cannot count the queries of --multiverse")
        models = [lm] if other_lm is None else [lm, other_lm]
        _show_cost(models, parsed_measures, context, json=json)
        return
    measure_run = _run(lm, other_lm, parsed_measures, inference, context)
    universes: list[Multiverse] = []
    if multiverse:
        from levelhead.measures.robustness.multiverse import multiverse as run_multiverse

        with show_progress("queries") as on_event:
            universes = [
                run_multiverse(
                    lm,
                    measure,
                    inference=inference,
                    context=replace(context, progress=on_event),
                )
                for measure in parsed_measures
            ]
    text = _json(measure_run, universes)
    if output is not None:
        from levelhead.core.files import write_atomic

        write_atomic(output, text.encode())
    if json:
        typer.echo(text, nl=False)
    else:
        _show(measure_run, parsed_measures, details=details)
        _show_universes(universes, details=details)


def _load_other(lm: LM, against: str | None, **load_options: Any) -> LM | None:
    """Load the model to compare with; `base` is the model without its edits."""
    from levelhead.models.loading.load import load

    if against == BASE:
        return replace(lm, edits=())
    return None if against is None else load(against, **load_options)


def _run(
    lm: LM, other_lm: LM | None, measures: list[Measure], inference: Inference, context: RunContext
) -> MeasureRun:
    from levelhead.measures.run import add_skills, run_measures

    with show_progress("queries") as on_event:
        measure_run = run_measures(
            lm,
            measures,
            against=other_lm,
            inference=inference,
            context=replace(context, progress=on_event),
        )
    if other_lm is None:
        return measure_run
    # An edit may lower a measure because the model no longer can do the task: compare skills, too.
    checked = add_skills(lm, measures, measure_run.measurements, context=context)
    return measure_run._replace(measurements=checked)


def _show_cost(
    models: list[LM], measures: list[Measure], context: RunContext, *, json: bool
) -> None:
    """Print what measuring the models would cost."""
    from levelhead.study.cost import CostEstimate, estimate_cost

    costs = [estimate_cost(lm, measures, context=context) for lm in models]
    total = sum(costs, CostEstimate())
    typer.echo(total.to_json() if json else str(total))


def _list_measures() -> None:
    """Print every metric under the name that -m takes."""
    from levelhead.measures.registry import MEASURES, is_utility, metric_texts

    texts = metric_texts()
    for measure_type in MEASURES.values():
        for metric, description in measure_type.metrics.items():
            prefix = "utility: " if is_utility(texts[metric]) else ""
            typer.echo(
                f"{texts[metric]:<33} {prefix}{description} ({' or '.join(measure_type.needs)})"
            )


def _parse_measures(measures: list[str], user_options: dict[str, str]) -> list[Measure]:
    """Parse the named measures; the user's texts are an option of counterfactual."""
    from levelhead.measures.classification.counterfactual import Counterfactual
    from levelhead.measures.registry import parse_measures

    parsed_measures = [
        measure for name in measures for measure in parse_measures(name, user_options)
    ]
    counterfactuals = [
        measure for measure in parsed_measures if isinstance(measure, Counterfactual)
    ]
    if user_options and not counterfactuals:
        option_names = ", ".join(
            f"--{'data' if name == 'texts' else name}" for name in user_options
        )
        raise typer.BadParameter(f"{option_names}: only -m counterfactual uses these, give it, too")
    if not all(measure.texts for measure in counterfactuals):
        raise typer.BadParameter("counterfactual needs your texts: --data FILE --text COLUMN")
    return parsed_measures


def _json(measure_run: MeasureRun, universes: list[Multiverse]) -> str:
    from levelhead.core.canonical_json import to_canonical_json

    document = {
        "measurements": [measurement.model_dump() for measurement in measure_run.measurements],
        "comparisons": [comparison.model_dump() for comparison in measure_run.comparisons],
    }
    if universes:
        document["multiverses"] = [universe.model_dump() for universe in universes]
    return to_canonical_json(document).decode() + "\n"


def _show(measure_run: MeasureRun, measures: list[Measure], *, details: bool) -> None:
    """Print tables and verdicts of a run.

    Args:
        measure_run: the measurements and comparisons.
        measures: the measures of the run.
        details: whether to show all extra numbers.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from levelhead.core.calibration import DAGGER_NOTE, failed_calibration_mark, with_mark
    from levelhead.measures.base import UNFLAGGED

    # A measure's other metrics and its result without flagged items belong to the result; the
    # remaining extras are for --details.
    always_shown = {
        metric.name for measure in measures for metric in measure.ordered_metrics[1:]
    } | {UNFLAGGED}
    fully_shown = {measure.name for measure in measures if measure.always_show_extras}
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("measure", "value", "interval", "parity", "p", "n", "detectable"):
        table.add_column(name, justify="left" if name in ("measure", "interval") else "right")
    for measurement in measure_run.measurements:
        table.add_row(
            with_mark(_display_name(measurement), measurement),
            *format_cells(measurement),
            style="bold" if details else "",
        )
        for extra in measurement.extras:
            if details or measurement.measure in fully_shown or extra.name in always_shown:
                table.add_row(
                    f"  {with_mark(extra.name, measurement, extra.name)}", *format_cells(extra)
                )
    console.print(table)
    for text in _verdict_lines(measure_run):
        console.print(Text(text), soft_wrap=True)
    for measurement in measure_run.measurements:
        for note in measurement.notes:
            console.print(Text(f"{_display_name(measurement)}: {note}"), soft_wrap=True)
    if any(failed_calibration_mark(measurement) for measurement in measure_run.measurements):
        console.print(Text(DAGGER_NOTE))
    _show_comparisons(console, measure_run)
    if any(
        measurement.p is not None and measurement.p.adjusted is not None
        for measurement in measure_run.measurements
    ):
        console.print(Text("p corrected by Holm for the measures of this run"))


def _verdict_lines(measure_run: MeasureRun) -> list[str]:
    """Format the verdict of each measurement, and the model's skill at its task."""
    from levelhead.core.verdicts import decide_measure_verdict

    lines = []
    for measurement in measure_run.measurements:
        verdict = decide_measure_verdict(measurement)
        if verdict.status != "no test":
            lines.append(f"{_display_name(measurement)}: verdict: {verdict}")
        if measurement.skill is not None:
            lines.append(f"{_display_name(measurement)}: skill: {measurement.skill}")
    return lines


def _show_universes(universes: list[Multiverse], *, details: bool) -> None:
    """Print how each conclusion changes with other choices of the analysis."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from levelhead.core.calibration import DAGGER_NOTE, failed_calibration_mark, with_mark

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
    for universe in universes:
        title = with_mark(_display_name(universe), universe.measured_by)
        console.print(Text(f"multiverse of {title}: {universe}"), soft_wrap=True)
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("specification", "value", "interval", "p", "n", "conclusion"):
            left = name in ("specification", "interval", "conclusion")
            table.add_column(name, justify="left" if left else "right")
        for specification in universe.specifications if details else ():
            p = "" if specification.p is None else _format_p(specification.p.value)
            cells = (
                f"{specification.value:.4g}",
                str(specification.interval),
                p,
                str(specification.n),
                specification.conclusion or "",
            )
            table.add_row(f"  {specification.name}", *cells)
        # Specifications that failed are always listed: without them the rest may look robust.
        for name, reason in universe.failed:
            table.add_row(f"  {name}", "", "", "", "", reason)
        if table.row_count:
            console.print(table)
        if failed_calibration_mark(universe.measured_by):
            console.print(Text(DAGGER_NOTE))


def _display_name(result: Measurement | Multiverse) -> str:
    """Format a measure's name, with the groups that it compares if these are a choice."""
    return f"{result.measure} ({', '.join(result.groups)})" if result.groups else result.measure


def _show_comparisons(console: Console, measure_run: MeasureRun) -> None:
    """Print the comparisons, if there are any."""
    from rich.table import Table
    from rich.text import Text

    if not measure_run.comparisons:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("second less first", "value", "interval", "parity", "p", "n", "detectable"):
        table.add_column(name, justify="left" if name in ("interval",) else "right")
    table.columns[0].justify = "left"
    for comparison in measure_run.comparisons:
        for difference in (comparison.difference, *comparison.extras):
            table.add_row(
                f"{difference.name} {comparison.mark}".rstrip(), *format_cells(difference)
            )
    console.print(table)
    for comparison in measure_run.comparisons:
        console.print(Text(str(comparison)), soft_wrap=True)
        for note in comparison.notes:
            console.print(Text(f"{comparison.measure}: {note}"), soft_wrap=True)


def format_cells(estimate: Measurement | Estimate) -> tuple[str, ...]:
    """Format an estimate as cells: value, interval, parity, p, n, detectable effect.

    Args:
        estimate: the estimate; n also reports its dropped items.
    """
    # The corrected p-value, if there is one: the table has all measures of a run.
    p = (
        ""
        if estimate.p is None
        else _format_p(estimate.p.value if estimate.p.adjusted is None else estimate.p.adjusted)
    )
    dropped = getattr(estimate, "dropped", ())
    n = f"{estimate.n} of {estimate.n + len(dropped)}" if dropped else str(estimate.n)
    return (
        f"{estimate.value:.4g}",
        str(estimate.interval),
        "" if estimate.parity is None else f"{estimate.parity:.4g}",
        p,
        n,
        "" if estimate.detectable is None else f"{estimate.detectable:.3g}",
    )


def _format_p(value: float) -> str:
    return "< .0001" if value < 1e-4 else f"{value:.4f}".lstrip("0") if value < 1 else "1"
