"""`levelhead mitigate select MODEL --dev FILE --test FILE`: choose an edit on the user's task."""

from __future__ import annotations

from typing import Annotated, get_args

import typer

from levelhead.cli.mitigate.selection_tables import REPORT_FILE, render_readme, show_selection
from levelhead.cli.shared.exit_codes import INCONCLUSIVE, ExitWithCode
from levelhead.cli.shared.help_pages import Panel
from levelhead.cli.shared.model_options import response_store
from levelhead.cli.shared.options import (
    AllowPickle,
    BatchSize,
    Device,
    Dtype,
    Groups,
    Json,
    Level,
    LexiconName,
    Model,
    Quiet,
    Resamples,
    ResponseStore,
    Revision,
    Seed,
    Threads,
    check_output_path,
    details_option,
)
from levelhead.cli.shared.progress import show_progress
from levelhead.core.errors import require_option
from levelhead.core.run_context import Inference, RunContext

README = "README.md"


def select_edit_command(
    model: Model,
    dev: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            rich_help_panel=Panel.DATA,
            help="File with the rows that choose the edit: .csv, .tsv or .jsonl.",
        ),
    ],
    test: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            rich_help_panel=Panel.DATA,
            help="File with other rows, on which the chosen edit is evaluated once.",
        ),
    ],
    bias_measure: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.MEASURE,
            help="Measure of bias: counterfactual, counterfactual_shift, fairness or strength.",
        ),
    ] = "counterfactual",
    utility_measure: Annotated[
        str,
        typer.Option(
            metavar="NAME", rich_help_panel=Panel.MEASURE, help="Measure of utility: accuracy."
        ),
    ] = "accuracy",
    min_utility_kept: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            rich_help_panel=Panel.EDIT,
            help="Minimum share of the accuracy that an edit must keep.",
        ),
    ] = 0.95,
    max_utility_loss: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS",
            rich_help_panel=Panel.EDIT,
            help="Maximum loss of accuracy in points, instead of --min-utility-kept.",
        ),
    ] = None,
    text: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.DATA,
            help="Column of the texts, for counterfactual measures.",
        ),
    ] = "text",
    label: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.DATA,
            help="Column of the labels, for counterfactual measures.",
        ),
    ] = "label",
    labels: Annotated[
        str | None,
        typer.Option(
            "--class-names",
            metavar="A,B,...",
            rich_help_panel=Panel.DATA,
            help="Names of the classes in the files, in the model's order and separated by "
            "commas; the model's own names by default.",
        ),
    ] = None,
    lexicon: LexiconName = "gender-en",
    groups: Groups = None,
    control: Annotated[
        bool,
        typer.Option(
            "--control/--no-control",
            rich_help_panel=Panel.STATISTICS,
            help="Count only the flips beyond those of placebo counterfactuals, or count all.",
        ),
    ] = True,
    paper_rules: Annotated[
        bool,
        typer.Option(
            "--paper-rules/--full-grid",
            rich_help_panel=Panel.EDIT,
            help="Leave out the settings that the paper found not worth trying, or try all.",
        ),
    ] = True,
    kinds: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            rich_help_panel=Panel.EDIT,
            help="Kinds of edits to try, separated by commas: projection, mask, steering.",
        ),
    ] = "projection,mask",
    head_ranking: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.EDIT,
            help="Method that ranks heads: gradient or ablation.",
        ),
    ] = "gradient",
    n_pairs: Annotated[
        int | None,
        typer.Option(
            "--pairs",
            metavar="N",
            rich_help_panel=Panel.EDIT,
            help="Number of pairs of texts to fit on; all by default. Fewer pairs leave words for "
            "`levelhead probe`.",
        ),
    ] = None,
    pair_source: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.EDIT,
            help="Texts to fit subspaces on: frames (sentence templates with the lexicon's words) "
            "or dev.",
        ),
    ] = "frames",
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            rich_help_panel=Panel.OUTPUT,
            help="New folder for the edit, if an edit is recommended.",
        ),
    ] = None,
    report: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=Panel.OUTPUT,
            callback=check_output_path,
            help="File for all results as JSON, whether an edit is recommended or not.",
        ),
    ] = None,
    json: Json = False,
    details: Annotated[bool, details_option("Show every candidate.")] = False,
    quiet: Quiet = False,
    seed: Seed = 0,
    resamples: Resamples = 1999,
    level: Level = 0.95,
    store: ResponseStore = None,
    threads: Threads = 1,
    batch_size: BatchSize = 32,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
) -> None:
    """Choose an edit on dev, and evaluate it once on test.

    Tries edits of the --kinds, and chooses by the confidence bounds on dev. Exit 2, and no edit is
    written, unless an edit reduces the bias within the utility cost on dev and again on test.
    """
    from pathlib import Path

    from levelhead.core.files import write_atomic
    from levelhead.mitigate.selection.candidate_evaluation import UtilityLimit
    from levelhead.mitigate.selection.candidates import CandidateGrid, HeadRanking, Kind
    from levelhead.mitigate.selection.select_edit import PairSource, select_edit
    from levelhead.mitigate.selection.user_task import (
        BiasMeasureName,
        TaskFiles,
        UtilityMeasureName,
    )
    from levelhead.models.edits.files import EditOrigin, save_edits
    from levelhead.models.export.save import prepare_new_folder
    from levelhead.models.loading.load import load

    if output is not None:
        # Before any candidate is tried: a folder that is not new fails at once.
        prepare_new_folder(Path(output))
    inference = Inference(seed=seed, resamples=resamples, level=level)
    files = TaskFiles(
        dev,
        test,
        bias_measure=require_option("bias measure", bias_measure, get_args(BiasMeasureName)),
        utility_measure=require_option(
            "utility measure", utility_measure, get_args(UtilityMeasureName)
        ),
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
    with show_progress("queries", quiet=quiet) as on_event:
        selection, edits = select_edit(
            lm,
            files,
            limit=UtilityLimit(min_utility_kept, max_utility_loss),
            grid=CandidateGrid(
                paper_rules,
                require_option("way to rank heads", head_ranking, get_args(HeadRanking)),
                kinds=tuple(
                    require_option("kind of edit", kind.strip(), get_args(Kind))
                    for kind in kinds.split(",")
                ),
            ),
            n_pairs=n_pairs,
            pair_source=require_option("kind of pairs", pair_source, get_args(PairSource)),
            inference=inference,
            context=RunContext(
                store=response_store(store, model),
                threads=threads,
                progress=on_event,
            ),
        )
    report_json = selection.to_json() + "\n"
    if report is not None:
        write_atomic(report, report_json.encode())
    if json:
        typer.echo(report_json, nl=False)
    else:
        show_selection(selection, details=details)
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
        # With --json, stdout holds the JSON and nothing else.
        typer.echo(f"{output}: {selection.chosen} of {lm.identity.name}", err=json)


def _parse_group_pair(groups: str | None) -> tuple[str, str] | None:
    if groups is None:
        return None
    names = tuple(groups.split(","))
    if len(names) != 2:
        raise typer.BadParameter("--groups names two groups, separated by a comma")
    return names
