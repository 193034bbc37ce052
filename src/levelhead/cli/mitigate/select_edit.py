"""`levelhead mitigate select MODEL --dev FILE --test FILE`: choose an edit on the user's task."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from levelhead.cli.shared.exit_codes import INCONCLUSIVE, ExitWithCode
from levelhead.cli.shared.options import (
    AllowPickle,
    BatchSize,
    Device,
    Dtype,
    Json,
    Level,
    Model,
    Resamples,
    Revision,
    check_output_path,
)
from levelhead.cli.shared.progress import show_progress
from levelhead.core.errors import require_option
from levelhead.core.run_context import Inference, RunContext

if TYPE_CHECKING:
    from rich.table import Table

    from levelhead.core.results import Estimate
    from levelhead.mitigate.selection.selection_report import CandidateResult, SelectionReport

REPORT_FILE, README = "why.json", "README.md"
N_SHOWN = 12
"""Candidates in the table without --details: a screen, not a list of hundreds."""


def select_edit_command(
    model: Model,
    dev: Annotated[
        str, typer.Option(help="File with the rows that choose the edit: .csv, .tsv, .jsonl.")
    ],
    test: Annotated[
        str, typer.Option(help="File with other rows, on which the edit is reported once.")
    ],
    bias_measure: Annotated[
        str,
        typer.Option(
            help="Measure of bias: counterfactual, counterfactual_shift, fairness or strength."
        ),
    ] = "counterfactual",
    utility_measure: Annotated[str, typer.Option(help="Utility metric: accuracy.")] = "accuracy",
    min_utility_kept: Annotated[
        float, typer.Option(help="Minimum share of the accuracy that an edit must keep.")
    ] = 0.95,
    max_utility_loss: Annotated[
        float | None,
        typer.Option(help="Maximum loss of accuracy in points, instead of --min-utility-kept."),
    ] = None,
    text: Annotated[str, typer.Option(help="Column of the texts, for counterfactual.")] = "text",
    label: Annotated[str, typer.Option(help="Column of the labels, for counterfactual.")] = "label",
    labels: Annotated[
        str | None,
        typer.Option(
            help="Names of the classes in the files, separated by commas, in the model's order."
        ),
    ] = None,
    lexicon: Annotated[
        str, typer.Option(help="Name or TOML file of the lexicon whose words are exchanged.")
    ] = "gender-en",
    groups: Annotated[
        str | None,
        typer.Option(help="Two of its groups, separated by a comma; the first two by default."),
    ] = None,
    control: Annotated[
        bool,
        typer.Option(
            "--control/--no-control",
            help="Count only the flips beyond those of placebo counterfactuals, or count all.",
        ),
    ] = True,
    paper_rules: Annotated[
        bool,
        typer.Option(
            "--paper-rules/--full-grid",
            help="Leave out the settings that the paper found not worth trying, or try all.",
        ),
    ] = True,
    head_ranking: Annotated[
        str, typer.Option(help="Method that ranks heads: gradient or ablation.")
    ] = ("gradient"),
    n_pairs: Annotated[
        int | None,
        typer.Option(
            "--pairs",
            help="Number of pairs of texts in frames; fewer pairs leave words for `probe`.",
        ),
    ] = None,
    pair_source: Annotated[
        str,
        typer.Option(help="Texts to fit subspaces on: the lexicon's words in frames, or dev."),
    ] = "frames",
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="New folder for the edit, if one is chosen."),
    ] = None,
    why: Annotated[
        str | None,
        typer.Option(
            callback=check_output_path,
            help="File for all results as JSON, whether an edit is chosen or not.",
        ),
    ] = None,
    json: Json = False,
    details: Annotated[bool, typer.Option("--details", help="Show every candidate.")] = False,
    seed: Annotated[int, typer.Option(help="Random seed of the resamples.")] = 0,
    resamples: Resamples = 1999,
    level: Level = 0.95,
    store: Annotated[
        str | None, typer.Option(help="Folder that stores responses; the cache by default.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Number of threads of NumPy and PyTorch.")] = 1,
    batch_size: BatchSize = 32,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
) -> None:
    """Choose an edit on dev rows and report it once on test rows.

    Tries projections and masks of heads, and chooses by the confidence bounds on dev. Exit 2, and
    no edit written, if none is shown to reduce the bias within the utility cost on dev and again on
    test.
    """
    from pathlib import Path

    from levelhead.core.files import write_atomic
    from levelhead.mitigate.selection.candidate_evaluation import UtilityLimit
    from levelhead.mitigate.selection.candidates import CandidateGrid, HeadRanking
    from levelhead.mitigate.selection.select_edit import PairSource, select_edit
    from levelhead.mitigate.selection.user_task import (
        BiasMeasureName,
        TaskFiles,
        UtilityMeasureName,
    )
    from levelhead.models.edits.files import EditOrigin, save_edits
    from levelhead.models.export.save import prepare_new_folder
    from levelhead.models.loading.load import load, model_cache_folder

    if output is not None:
        prepare_new_folder(Path(output))
    inference = Inference(seed=seed, resamples=resamples, level=level)
    files = TaskFiles(
        dev,
        test,
        bias_measure=require_option("gain", bias_measure, get_args(BiasMeasureName)),
        utility_measure=require_option("price", utility_measure, get_args(UtilityMeasureName)),
        text=text,
        label=label,
        labels=labels.split(",") if labels else None,
        lexicon=lexicon,
        groups=_parse_group_pair(groups),
        control=control,
    )
    lm = load(
        model,
        revision=revision,
        device=device,
        dtype=dtype,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
    )
    with show_progress("queries") as on_event:
        selection, edits = select_edit(
            lm,
            files,
            limit=UtilityLimit(min_utility_kept, max_utility_loss),
            grid=CandidateGrid(
                paper_rules,
                require_option("way to rank heads", head_ranking, get_args(HeadRanking)),
            ),
            n_pairs=n_pairs,
            pair_source=require_option("kind of pairs", pair_source, get_args(PairSource)),
            inference=inference,
            context=RunContext(
                store=store or str(model_cache_folder().parent / "readouts"),
                threads=threads,
                progress=on_event,
            ),
        )
    report_json = selection.to_json() + "\n"
    if why is not None:
        write_atomic(why, report_json.encode())
    if json:
        typer.echo(report_json, nl=False)
    else:
        _show(selection, details=details)
    # An edit that test does not confirm is not written: its dev result is subject to selection.
    if not selection.is_recommended:
        raise ExitWithCode(INCONCLUSIVE)
    if output is not None:
        # The edit comes last: a folder without it is never read as one.
        write_atomic(str(Path(output, REPORT_FILE)), report_json.encode())
        write_atomic(str(Path(output, README)), render_readme(selection).encode())
        origin = EditOrigin.from_model(
            lm, setting=selection.chosen, lexicon=Path(lexicon).name, report=REPORT_FILE
        )
        save_edits(edits, output, fitted_words=selection.fitted_words, origin=origin)
        typer.echo(f"{output}: {selection.chosen} of {lm.identity.name}", err=json)


def _parse_group_pair(groups: str | None) -> tuple[str, str] | None:
    if groups is None:
        return None
    names = tuple(groups.split(","))
    if len(names) != 2:
        raise typer.BadParameter("--groups names two groups, separated by a comma")
    return names


def render_readme(selection: SelectionReport) -> str:
    """Render the README of an edit: why it was chosen, and what was not shown.

    Args:
        selection: the report of the selection.
    """
    from levelhead.core.calibration import with_mark

    # What was not shown and every rejected candidate go with the edit: whoever gets the folder
    # sees how many were tried, not only the one that passed.
    measure_key = selection.measured_by
    lines = [
        f"# {selection.chosen}: an edit of {selection.provenance.model}",
        "",
        f"{selection.reason[0].upper()}{selection.reason[1:]}.",
        "",
        *(f"- {line}" for line in _summary_lines(selection)),
        "",
        "Not shown:",
        "",
        *(f"- {limitation}" for limitation in selection.not_shown),
        *(f"- {note}" for note in selection.notes),
        "",
        "## Candidates on dev",
        "",
        f"| candidate | what | {with_mark('gain', measure_key)} | lower bound | loss | why not |",
        "|---|---|---|---|---|---|",
        *(f"| {' | '.join(_row(candidate))} |" for candidate in selection.candidates),
        "",
        f"Not tried: {len(selection.excluded)} settings (Dawkins et al. 2024, section 5).",
        f"All numbers, hashes and what was dropped: {REPORT_FILE}.",
    ]
    return "\n".join(lines) + "\n"


def _summary_lines(selection: SelectionReport) -> list[str]:
    """List the base, the gain and the utility cost, and whether the measure failed calibration."""
    from levelhead.core.calibration import DAGGER_NOTE, failed_calibration_mark

    dropped_text = ", ".join(f"{what} {len(rows)}" for what, rows in selection.dropped if rows)
    lines = [
        f"before, on dev: {selection.base}; {selection.base_utility}",
        f"utility cost allowed: {selection.max_utility_loss:.4g} of {selection.utility_measure}"
        + ("" if selection.min_utility_kept is None else f" (keep {selection.min_utility_kept:g})"),
        f"dropped: {dropped_text or 'nothing'}",
    ]
    if selection.on_test is not None:
        gain, loss = selection.on_test.gain, selection.on_test.loss
        lines.append(f"on test: {_estimate_text(gain)}; {_estimate_text(loss)}")
    if failed_calibration_mark(selection.measured_by):
        lines.append(f"{selection.bias_measure} {DAGGER_NOTE}")
    return lines


def _estimate_text(estimate: Estimate | None) -> str:
    return "no change" if estimate is None else str(estimate)


def _row(candidate: CandidateResult) -> tuple[str, ...]:
    return (
        candidate.name,
        candidate.description,
        *_cells(candidate),
        candidate.exclusion_reason,
    )


def _cells(candidate: CandidateResult) -> tuple[str, str, str]:
    return (
        "" if candidate.gain is None else f"{candidate.gain.value:.4g} {candidate.gain.interval}",
        "" if candidate.lower_bound is None else f"{candidate.lower_bound:.4g}",
        "" if candidate.loss is None else f"{candidate.loss.value:.4g} {candidate.loss.interval}",
    )


def _show(selection: SelectionReport, *, details: bool) -> None:
    """Print the candidates with the largest bounds, or all, and the notes of the report."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 130)
    console.print(_table(selection, details=details))
    missing = (
        [f"not shown: {limitation}" for limitation in selection.not_shown]
        if selection.is_recommended
        else []
    )
    for line in (*_summary_lines(selection), selection.reason, *missing, *selection.notes):
        console.print(Text(line), soft_wrap=True)


def _table(selection: SelectionReport, *, details: bool) -> Table:
    from rich.table import Table

    from levelhead.core.calibration import with_mark

    table = Table(box=None, pad_edge=False, header_style="bold")
    gain = with_mark("gain on dev", selection.measured_by)
    for name in ("candidate", gain, "lower bound", "loss on dev", "why not"):
        table.add_column(name, justify="right" if name == "lower bound" else "left")
    # By the bound, not the value: a large gain with a wide interval is not the better candidate.
    ranked = sorted(
        selection.candidates,
        key=lambda candidate: (
            -float("inf") if candidate.lower_bound is None else candidate.lower_bound
        ),
    )
    ranked.reverse()
    for candidate in ranked if details else ranked[:N_SHOWN]:
        table.add_row(candidate.name, *_cells(candidate), candidate.exclusion_reason)
    if len(ranked) > N_SHOWN and not details:
        table.add_row(f"... {len(ranked) - N_SHOWN} more", "", "", "", "")
    return table
