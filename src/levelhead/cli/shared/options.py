"""Options that several commands share, named like the Python keywords."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from levelhead.cli.shared.help_pages import Panel
from levelhead.cli.shared.measure_names import check_measure_name


def check_output_path(path: str | None) -> str | None:
    """Refuse a file that cannot be written."""
    from levelhead.core.files import check_writable

    # typer calls this while it parses options: the error comes before hours of work, not after.
    if path is not None:
        check_writable(path)
    return path


def _check_chart_path(path: str | None) -> str | None:
    """Refuse a chart's file that cannot be written or whose ending names no format."""
    from levelhead.report.save import renderer_for

    if path is not None:
        renderer_for(path)
    return check_output_path(path)


def _check_measures(names: list[str]) -> list[str]:
    """Refuse a measure that does not exist, before torch is imported."""
    for name in names:
        check_measure_name(name)
    return names


def check_measure(name: str | None) -> str | None:
    """Refuse a measure that does not exist, before torch is imported."""
    if name is not None:
        check_measure_name(name)
    return name


def _check_model(model: str) -> str:
    """Refuse a path that does not exist, before torch is imported."""
    from pathlib import Path

    from levelhead.core.errors import LevelheadError

    # Any other name may be a model on the Hub.
    if model.startswith(("/", "./", "../")) and not Path(model).exists():
        raise LevelheadError(f"there is no folder or file {model}", hint="check the path")
    return model


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        callback=_check_model,
        help="Hub id, folder written by save_pretrained, or .gguf file.",
    ),
]
ModelOrServer = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        callback=_check_model,
        help="Hub id, folder written by save_pretrained, .gguf file, or address of a server such "
        "as http://127.0.0.1:8080.",
    ),
]
Revision = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=Panel.MODEL,
        help="Branch, tag or commit of the model on the Hub.",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=Panel.EXECUTION,
        help="Device that runs the model, such as cpu or cuda:0; the CPU by default.",
    ),
]
Dtype = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        rich_help_panel=Panel.MODEL,
        help="Precision of the weights: float32, float64, bfloat16 or float16.",
    ),
]
AllowPickle = Annotated[
    bool,
    # Unpickling runs the code that is in the file, so it is never the default.
    typer.Option(
        "--allow-pickle",
        rich_help_panel=Panel.MODEL,
        help="Read pickled weights, which can run code: only if you trust their author.",
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        rich_help_panel=Panel.EXECUTION,
        help="Budget of tokens, of prompts and answers, for a server; no limit by default.",
    ),
]
MaxCost = Annotated[
    float | None,
    typer.Option(
        metavar="MONEY",
        min=0.0,
        rich_help_panel=Panel.EXECUTION,
        help="Budget of money for a server, in the currency of --prompt-price; default: no limit.",
    ),
]
PromptPrice = Annotated[
    float,
    typer.Option(
        metavar="MONEY",
        min=0.0,
        rich_help_panel=Panel.EXECUTION,
        help="Price of a million tokens of prompts, for --max-cost.",
    ),
]
CompletionPrice = Annotated[
    float,
    typer.Option(
        metavar="MONEY",
        min=0.0,
        rich_help_panel=Panel.EXECUTION,
        help="Price of a million generated tokens, for --max-cost.",
    ),
]
Edit = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        rich_help_panel=Panel.MODEL,
        help="Folder of an edit to apply to the model, as written by `levelhead mitigate`.",
    ),
]
RequiredEdit = Annotated[
    str,
    typer.Option(
        metavar="FOLDER",
        rich_help_panel=Panel.MODEL,
        help="Folder of an edit of the model, as written by `levelhead mitigate`.",
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        rich_help_panel=Panel.MODEL,
        help="Second model, compared with the first item by item; `base` is the first model "
        "without its edit.",
    ),
]
SystemPrompt = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        rich_help_panel=Panel.MODEL,
        help="System prompt before every chat request: a mitigation by prompt. No effect on texts "
        "that are scored or continued as they are; `--against base` is without it.",
    ),
]
Measure = Annotated[
    str,
    typer.Option(
        "--measure",
        "-m",
        metavar="MEASURE",
        rich_help_panel=Panel.MEASURE,
        callback=check_measure,
        help="Name of a measure, with options after a colon: seat:contexts_per_word=10.",
    ),
]
# Not checked here: with --agreement they are columns of a table.
OptionalMeasures = Annotated[
    list[str] | None,
    typer.Option(
        "--measure",
        "-m",
        metavar="MEASURE",
        rich_help_panel=Panel.MEASURE,
        help="Name of a measure, with options after a colon: strength:part=dev,top=0.2. Repeat "
        "for more measures.",
    ),
]
Measures = Annotated[
    list[str],
    typer.Option(
        "--measure",
        "-m",
        metavar="MEASURE",
        rich_help_panel=Panel.MEASURE,
        callback=_check_measures,
        help="Name of a measure; the first one orders the models. Repeat for more measures.",
    ),
]
LexiconName = Annotated[
    str,
    typer.Option(
        "--lexicon",
        metavar="NAME",
        rich_help_panel=Panel.DATA,
        help="Name or TOML file of the lexicon with the groups' words.",
    ),
]
Groups = Annotated[
    str | None,
    typer.Option(
        metavar="A,B",
        rich_help_panel=Panel.DATA,
        help="Two groups of the lexicon, separated by a comma; the first two by default.",
    ),
]
Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        rich_help_panel=Panel.OUTPUT,
        callback=check_output_path,
        help="File for the result as JSON.",
    ),
]
RunFolder = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="FOLDER",
        rich_help_panel=Panel.OUTPUT,
        help="Folder for the results; the same command resumes a run that is in it.",
    ),
]
EditFolder = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="FOLDER",
        rich_help_panel=Panel.OUTPUT,
        help="New folder for the edit.",
    ),
]
Chart = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=Panel.OUTPUT,
        callback=_check_chart_path,
        help="File for the chart: .svg, .png or .html.",
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", rich_help_panel=Panel.OUTPUT, help="Print JSON instead of tables."),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", rich_help_panel=Panel.OUTPUT, help="Print no progress."),
]
Items = Annotated[
    bool,
    typer.Option(
        "--items/--no-items",
        rich_help_panel=Panel.OUTPUT,
        help="Whether results contain the texts of the items; leave them out if they are "
        "confidential.",
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        rich_help_panel=Panel.EXECUTION,
        help="Print the estimated cost and time, and exit without computing or writing anything.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        metavar="SEED",
        rich_help_panel=Panel.STATISTICS,
        help="Random seed of sampling, bootstrap resamples and permutations.",
    ),
]
Resamples = Annotated[
    int,
    typer.Option(
        metavar="N", rich_help_panel=Panel.STATISTICS, help="Number of bootstrap resamples."
    ),
]
Permutations = Annotated[
    int,
    typer.Option(
        metavar="N",
        rich_help_panel=Panel.STATISTICS,
        help="Number of permutations of each permutation test.",
    ),
]
Level = Annotated[
    float,
    typer.Option(
        metavar="SHARE",
        rich_help_panel=Panel.STATISTICS,
        help="Confidence level of the intervals.",
    ),
]
BatchSize = Annotated[
    int,
    typer.Option(
        metavar="N", rich_help_panel=Panel.EXECUTION, help="Number of texts in a forward pass."
    ),
]
Threads = Annotated[
    int,
    typer.Option(
        metavar="N",
        rich_help_panel=Panel.EXECUTION,
        help="Number of CPU threads; more are faster and may change the last digits.",
    ),
]
ResponseStore = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="FOLDER",
        rich_help_panel=Panel.EXECUTION,
        help="Folder or URL that stores the model's responses; the cache by default.",
    ),
]
# Training: sums of floats depend on how threads share them, so their number is part of a recipe.
TrainingThreads = Annotated[
    int,
    typer.Option(
        "--threads",
        metavar="N",
        rich_help_panel=Panel.EXECUTION,
        help="Number of CPU threads; part of the recipe, as another number may change the last "
        "digits of the weights.",
    ),
]
TrainingSeed = Annotated[
    int,
    typer.Option(
        "--seed",
        metavar="SEED",
        rich_help_panel=Panel.TRAINING,
        help="Random seed of the order of texts, new weights, masked tokens and dropout.",
    ),
]
TrainingBatchSize = Annotated[
    int,
    typer.Option(
        "--batch-size",
        metavar="N",
        rich_help_panel=Panel.TRAINING,
        help="Number of texts in a training step.",
    ),
]
LearningRate = Annotated[
    float,
    typer.Option(
        "--learning-rate",
        "--lr",
        metavar="RATE",
        rich_help_panel=Panel.TRAINING,
        help="Peak learning rate.",
    ),
]
TrainedFolder = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="FOLDER",
        rich_help_panel=Panel.OUTPUT,
        help="New folder for the trained model, or the folder of a training to resume.",
    ),
]
HeadMapFile = Annotated[
    str,
    typer.Argument(
        metavar="HEADS", help="Head map: a file that `levelhead locate MODEL -o FILE` wrote."
    ),
]


def details_option(help_text: str) -> Any:
    """Create the option for more detail.

    Args:
        help_text: what is added.
    """
    return typer.Option(
        "--details", "--verbose", "-v", rich_help_panel=Panel.OUTPUT, help=help_text
    )
