"""`levelhead explain mediation MODEL -m NAME`: which parts carry the effect of exchanged words."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from levelhead.cli.shared.exit_codes import INCONCLUSIVE, ExitWithCode
from levelhead.cli.shared.help_pages import Panel
from levelhead.cli.shared.model_options import response_store
from levelhead.cli.shared.options import (
    AllowPickle,
    BatchSize,
    Device,
    Dtype,
    Edit,
    Json,
    Level,
    Measure,
    Model,
    Output,
    Quiet,
    Resamples,
    ResponseStore,
    Revision,
    Seed,
    Threads,
    details_option,
)
from levelhead.cli.shared.output import write_result
from levelhead.cli.shared.progress import show_progress
from levelhead.core.errors import LevelheadError, require_option
from levelhead.core.run_context import Inference, RunContext

if TYPE_CHECKING:
    from levelhead.core.results import Estimate
    from levelhead.locate.patching.mediation_map import MediationMap
    from levelhead.locate.patching.twins import TwinWords

FIRST_ROWS = 15
"""Parts that are shown without --details: they fit a screen."""


def mediation_command(
    model: Model,
    measure: Measure = "crows:metric=crows_margin",
    twins: Annotated[
        str,
        typer.Option(
            metavar="WORDS",
            rich_help_panel=Panel.DATA,
            help="Words to exchange: name or TOML file of a lexicon, or pairs such as "
            "nurse=engineer, separated by commas.",
        ),
    ] = "gender-en",
    components: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            rich_help_panel=Panel.HEADS,
            help="Components to exchange, separated by commas: heads, mlp, embeddings.",
        ),
    ] = "heads,mlp",
    patch_top: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            rich_help_panel=Panel.HEADS,
            help="Number of components with the largest attributions to exchange exactly, `all` or "
            "`none`; all of at most 160 by default.",
        ),
    ] = None,
    tokens: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.HEADS,
            help="Tokens whose activations are exchanged: all, exchanged (where the words differ) "
            "or others.",
        ),
    ] = "all",
    direct: Annotated[
        bool,
        typer.Option("--direct", rich_help_panel=Panel.HEADS, help="Measure direct effects, too."),
    ] = False,
    split: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.STATISTICS,
            help="What is split into the half that ranks and the half that tests: auto, words or "
            "none.",
        ),
    ] = "auto",
    output: Output = None,
    json: Json = False,
    details: Annotated[bool, details_option("Show every component.")] = False,
    quiet: Quiet = False,
    seed: Seed = 0,
    resamples: Resamples = 1999,
    level: Level = 0.95,
    store: ResponseStore = None,
    threads: Threads = 1,
    edit: Edit = None,
    batch_size: BatchSize = 32,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
) -> None:
    """Test which parts carry the effect of a word.

    Every text is compared with its twin, in which words are exchanged (Vig et al. 2020). The
    activations of a component in the twin are put into the text: how much of the total effect comes
    with them? Attribution patching ranks all components on one half of the items, exact patching
    tests them on the other. Exit 2 if the exchange is not shown to change the measure.
    """
    from levelhead.locate.head_map import Component, SplitBy
    from levelhead.locate.patching.interchange import TokenChoice
    from levelhead.locate.patching.mediation import MediationConfig, mediate
    from levelhead.measures.registry import parse_measure
    from levelhead.models.loading.load import load

    config = MediationConfig(
        components=tuple(
            require_option("part", component, get_args(Component))
            for component in components.split(",")
        ),
        patch_top=_parse_patch_top(patch_top),
        tokens=require_option("choice of tokens", tokens, get_args(TokenChoice)),
        has_direct_effects=direct,
        split=require_option("split", split, ("auto", *get_args(SplitBy))),
    )
    words = parse_twin_words(twins)
    lm = load(
        model,
        revision=revision,
        edit=edit,
        device=device,
        dtype=dtype,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
    )
    with show_progress("exchanging activations", quiet=quiet) as on_event:
        result = mediate(
            lm,
            parse_measure(measure),
            twins=words,
            config=config,
            inference=Inference(seed=seed, resamples=resamples, level=level),
            context=RunContext(
                store=response_store(store, model), threads=threads, progress=on_event
            ),
        )
    write_result(result, lambda: _show(result, details=details), output=output, json=json)
    if not result.is_total_shown:
        raise ExitWithCode(INCONCLUSIVE)


def parse_twin_words(text: str) -> TwinWords:
    """Read the words that are exchanged from a command line.

    Args:
        text: name or file of a lexicon, or pairs such as nurse=engineer, separated by commas.
    """
    if "=" not in text:
        return text
    words: dict[str, str] = {}
    for pair in text.split(","):
        old, _, new = (part.strip() for part in pair.partition("="))
        if not old or not new:
            raise LevelheadError(
                f"{pair!r} is no pair of words", hint="write --twins nurse=engineer,clerk=driver"
            )
        words[old] = new
    return words


def _parse_patch_top(text: str | None) -> int | str | None:
    # Python converts no text of thousands of digits; no model has a million parts.
    return int(text) if text is not None and re.fullmatch(r"\d{1,6}", text) else text


def _show(result: MediationMap, *, details: bool) -> None:
    """Print the total effect, the first parts, and what was left out."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
    table = Table(box=None, pad_edge=False, header_style="bold")
    has_direct = any(effect.direct is not None for effect in result.effects)
    names = ["component", "attribution", "indirect effect", "interval", "share", "adjusted p"]
    for name in [*names, *(("direct effect", "interval") if has_direct else ())]:
        table.add_column(name, justify="left" if name in ("component", "interval") else "right")
    for effect in result.ranked if details else result.ranked[:FIRST_ROWS]:
        share = result.share(effect)
        cells = [
            effect.label,
            f"{effect.attribution:.3g}",
            *_format_effect(effect.indirect),
            "" if share is None else f"{share:.0%}",
            _format_p(effect.indirect),
        ]
        table.add_row(*cells, *(_format_effect(effect.direct) if has_direct else ()))
    console.print(table)
    lines = [
        f"total effect on {result.measure}: {result.total.value:.3g} {result.total.interval} "
        f"(n {result.total.n}); on the items that rank: {result.discovery_total.value:.3g} "
        f"{result.discovery_total.interval}",
        "indirect effect: the text with this component of its twin, less the text",
        result.claim,
        f"verdict: {result.verdict} (p corrected by Romano-Wolf)",
    ]
    if result.agreement is not None:
        lines.append(str(result.agreement))
    for line in (*lines, *result.notes):
        console.print(Text(line), soft_wrap=True)


def _format_effect(estimate: Estimate | None) -> tuple[str, str]:
    return ("", "") if estimate is None else (f"{estimate.value:.3g}", str(estimate.interval))


def _format_p(estimate: Estimate | None) -> str:
    if estimate is None or estimate.p is None or estimate.p.adjusted is None:
        return ""
    return f"{estimate.p.adjusted:.3g}"
