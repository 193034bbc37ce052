"""`levelhead measure MODEL -m NAME ...`: print measurements as tables or as JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from levelhead.cli.shared.executors import (
    LOCAL,
    Address,
    ExecutorName,
    Gpus,
    Workers,
    make_executor,
)
from levelhead.cli.shared.help_pages import Panel
from levelhead.cli.shared.measure_names import check_measure_name
from levelhead.cli.shared.measurement_tables import (
    show_cost,
    show_measure_list,
    show_measurements,
    show_multiverses,
)
from levelhead.cli.shared.model_options import response_store
from levelhead.cli.shared.options import (
    Against,
    AllowPickle,
    BatchSize,
    Device,
    DryRun,
    Dtype,
    Edit,
    Items,
    Json,
    Level,
    ModelOrServer,
    OptionalMeasures,
    Output,
    Permutations,
    Quiet,
    Resamples,
    Revision,
    Seed,
    SystemPrompt,
    Threads,
    details_option,
)
from levelhead.cli.shared.progress import show_progress
from levelhead.cli.shared.tracking import Log, check_trackers, log_results
from levelhead.core.run_context import Inference, RunContext
from levelhead.models.loading.open_model import open_model

if TYPE_CHECKING:
    from levelhead.measures.base import Measure
    from levelhead.measures.robustness.multiverse import Multiverse
    from levelhead.measures.run import MeasureRun
    from levelhead.mitigate.evaluation.knowledge import KnowledgePanel
    from levelhead.models.lm import LM

BASE = "base"


def measure_command(
    model: ModelOrServer = "",
    measures: OptionalMeasures = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=Panel.DATA,
            help="File of your texts, for the measure counterfactual: .csv, .tsv or .jsonl.",
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.DATA,
            help="Column of the texts in --data; `text` by default.",
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", rich_help_panel=Panel.DATA, help="Column of the labels in --data."
        ),
    ] = None,
    lexicon: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.DATA,
            help="Name or TOML file of the lexicon whose words are exchanged in the texts of "
            "--data; gender-en by default.",
        ),
    ] = None,
    edit: Edit = None,
    system_prompt: SystemPrompt = None,
    against: Against = None,
    price: Annotated[
        bool,
        typer.Option(
            "--price",
            rich_help_panel=Panel.MEASURE,
            help="Also compare what a mitigation costs: fluency, and of chat models followed "
            "instructions and common knowledge; with --against.",
        ),
    ] = False,
    knowledge: Annotated[
        float | None,
        typer.Option(
            "--knowledge",
            metavar="MARGIN",
            min=0,
            max=100,
            rich_help_panel=Panel.MEASURE,
            help="Also test whether what words mean and which pronouns agree is kept within this "
            "margin, such as 5 percentage points; with --against.",
        ),
    ] = None,
    output: Output = None,
    items: Items = True,
    json: Json = False,
    details: Annotated[bool, details_option("Show the supporting numbers of each measure.")] = (
        False
    ),
    quiet: Quiet = False,
    log: Log = None,
    multiverse: Annotated[
        bool,
        typer.Option(
            "--multiverse",
            rich_help_panel=Panel.MEASURE,
            help="Repeat each measure with other templates, words, layers and pooling.",
        ),
    ] = False,
    agreement: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            rich_help_panel=Panel.MEASURE,
            help="Correlate measures over models, without a MODEL: file or folder of results "
            "written by -o, or .csv table with columns named by -m. Repeat for more paths.",
        ),
    ] = None,
    dry_run: DryRun = False,
    show: Annotated[
        bool,
        typer.Option("--list", rich_help_panel=Panel.MEASURE, help="List all measures, and exit."),
    ] = False,
    seed: Seed = 0,
    resamples: Resamples = 1999,
    permutations: Permutations = 9999,
    level: Level = 0.95,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            rich_help_panel=Panel.EXECUTION,
            help="Folder or URL that stores the model's responses; the cache by default, and none "
            "for a server.",
        ),
    ] = None,
    workers: Workers = None,
    executor: ExecutorName = LOCAL,
    address: Address = LOCAL,
    gpus: Gpus = 0,
    threads: Threads = 1,
    batch_size: BatchSize = 32,
    bos: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.MODEL,
            help="When to put a BOS token before a text: auto, always or tokenizer.",
        ),
    ] = "auto",
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
) -> None:
    """Measure a model with one or more measures.

    Responses are cached: another seed, level or option of a formula needs no forward pass. With
    --agreement and without a model, prints the rank correlations of measures over models or edits.
    Exit 3 if anything could not be measured; no value is substituted for a missing number.
    """
    if show:
        show_measure_list()
        return
    if agreement:
        from levelhead.cli.shared.agreement import show_agreement

        if model:
            raise typer.BadParameter("--agreement reads results: leave out the model")
        show_agreement(agreement, measures or (), level=level, output=output, json=json)
        return
    if not model or not measures:
        raise typer.BadParameter("name a model and at least one measure: levelhead measure --list")
    user_options = {"texts": data, "text": text, "label": label, "lexicon": lexicon}
    parsed_measures = _parse_measures(
        measures, {name: value for name, value in user_options.items() if value}
    )
    check_trackers(log)
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
    ).with_system_prompt(system_prompt or "")
    other_lm = _load_other(
        lm,
        against,
        device=device,
        dtype=dtype,
        bos=bos,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
    )
    parsed_measures += _list_price_measures(lm, other_lm, price=price, knowledge=knowledge)
    context = RunContext(
        store=response_store(store, model),
        threads=threads,
        record_items=items,
        executor=make_executor(executor, workers=workers, address=address, gpus=gpus),
    )
    if dry_run:
        if multiverse:
            raise typer.BadParameter("--dry-run cannot count the queries of --multiverse")
        models = [lm] if other_lm is None else [lm, other_lm]
        show_cost(models, parsed_measures, context, json=json)
        return
    measure_run = _run(lm, other_lm, parsed_measures, inference, context, quiet=quiet)
    universes = (
        _run_multiverses(lm, parsed_measures, inference, context, quiet=quiet) if multiverse else []
    )
    panel = _evaluate_knowledge(lm, other_lm, knowledge, inference, context)
    text = _json(measure_run, universes, panel)
    if output is not None:
        from levelhead.core.files import write_atomic

        write_atomic(output, text.encode())
    if json:
        typer.echo(text, nl=False)
    else:
        show_measurements(measure_run, parsed_measures, details=details)
        show_multiverses(universes, details=details)
        typer.echo("" if panel is None else f"{panel}", nl=panel is not None)
    log_results(
        log,
        [*measure_run.measurements, *measure_run.comparisons],
        name=model,
        files=[path for path in (edit, output) if path is not None],
    )


def _load_other(lm: LM, against: str | None, **load_options: Any) -> LM | None:
    """Load the model to compare with; `base` is the model without its edits and prompt."""
    if against == BASE:
        return replace(lm.with_system_prompt(""), edits=())
    return None if against is None else open_model(against, **load_options)


def _list_price_measures(
    lm: LM, other_lm: LM | None, *, price: bool, knowledge: float | None
) -> list[Measure]:
    """List the utilities for the price of a mitigation of a model, if they are wanted."""
    if other_lm is None and (price or knowledge is not None):
        option = "--price" if price else "--knowledge"
        raise typer.BadParameter(f"{option} compares with another model: add --against base")
    if not price:
        return []
    from levelhead.mitigate.evaluation.price import list_price_measures

    return list(list_price_measures(lm))


def _run_multiverses(
    lm: LM, measures: list[Measure], inference: Inference, context: RunContext, *, quiet: bool
) -> list[Multiverse]:
    from levelhead.measures.robustness.multiverse import multiverse

    with show_progress("queries", quiet=quiet) as on_event:
        context = replace(context, progress=on_event)
        return [
            multiverse(lm, measure, inference=inference, context=context) for measure in measures
        ]


def _evaluate_knowledge(
    lm: LM, other_lm: LM | None, margin: float | None, inference: Inference, context: RunContext
) -> KnowledgePanel | None:
    """Test whether knowledge of the other model is kept, if a margin is given."""
    if margin is None or other_lm is None:
        return None
    from levelhead.mitigate.evaluation.knowledge import evaluate_knowledge

    return evaluate_knowledge(other_lm, lm, margin=margin, inference=inference, context=context)


def _run(
    lm: LM,
    other_lm: LM | None,
    measures: list[Measure],
    inference: Inference,
    context: RunContext,
    *,
    quiet: bool,
) -> MeasureRun:
    from levelhead.measures.run import add_skills, run_measures

    with show_progress("queries", quiet=quiet) as on_event:
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


def _parse_measures(measures: list[str], user_options: dict[str, str]) -> list[Measure]:
    """Parse the named measures; the user's texts are an option of counterfactual."""
    # Before torch is imported, which takes seconds.
    for name in measures:
        check_measure_name(name)
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
        raise typer.BadParameter(f"{option_names}: only -m counterfactual uses your texts; add it")
    if not all(measure.texts for measure in counterfactuals):
        raise typer.BadParameter("counterfactual needs your texts: --data FILE --text COLUMN")
    return parsed_measures


def _json(
    measure_run: MeasureRun, universes: list[Multiverse], panel: KnowledgePanel | None
) -> str:
    from levelhead.core.canonical_json import to_canonical_json

    document: dict[str, object] = {
        "measurements": [measurement.model_dump() for measurement in measure_run.measurements],
        "comparisons": [comparison.model_dump() for comparison in measure_run.comparisons],
    }
    if universes:
        document["multiverses"] = [universe.model_dump() for universe in universes]
    if panel is not None:
        document["knowledge"] = panel.model_dump()
    return to_canonical_json(document).decode() + "\n"
