"""`levelhead probe MODEL --edit EDIT`: test whether an edit removed the group or hid it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.exit_codes import FAIL, INCONCLUSIVE, ExitWithCode
from levelhead.cli.shared.help_pages import Panel
from levelhead.cli.shared.options import (
    AllowPickle,
    BatchSize,
    Device,
    Dtype,
    Groups,
    Json,
    LexiconName,
    Model,
    Output,
    Quiet,
    RequiredEdit,
    Revision,
    Seed,
    check_measure,
)
from levelhead.cli.shared.output import write_result
from levelhead.cli.shared.progress import show_progress, show_steps
from levelhead.core.errors import require_option
from levelhead.core.run_context import Inference, RunContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.results import Estimate
    from levelhead.data.counterfactuals.contrast_pairs import ContrastPair, PairSet
    from levelhead.mitigate.probing.concept_removal import RemovalReport
    from levelhead.models.sites import Site

NO_WORDS = "none"


def probe_command(
    model: Model,
    edit: RequiredEdit,
    fitted_on: Annotated[
        str | None,
        typer.Option(
            "--exclude-words",
            metavar="WORDS",
            rich_help_panel=Panel.DATA,
            help="Other words that the edit was fitted or chosen on: a .txt file with a word per "
            "line; a lexicon with the options of `mitigate project` (gender-en:n=60,seed=0); or "
            "none. Words that the edit's folder records are always excluded.",
        ),
    ] = None,
    lexicon: LexiconName = "gender-en",
    groups: Groups = None,
    texts: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            rich_help_panel=Panel.DATA,
            help="Sentences to probe instead of templates: files, globs or URLs (.txt, .tsv, "
            ".jsonl, .parquet) that the edit was not fitted on. Repeat for more paths.",
        ),
    ] = None,
    measure_name: Annotated[
        str | None,
        typer.Option(
            "--measure",
            "-m",
            metavar="MEASURE",
            rich_help_panel=Panel.MEASURE,
            callback=check_measure,
            help="Measure of bias whose reduction by the edit is tested, too.",
        ),
    ] = None,
    sites: Annotated[
        list[str] | None,
        typer.Option(
            "--site",
            metavar="SITE",
            rich_help_panel=Panel.MEASURE,
            help="Site to probe, such as pooled or 'block_out 11' (layers count from 0); where the "
            "model's heads read by default. Repeat for more sites.",
        ),
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=Panel.MEASURE,
            help="Tokens to read: first, mean, word or last; those of the site by default.",
        ),
    ] = None,
    # 19 permutations are the fewest that can give p = .05: (0 + 1) / (19 + 1).
    label_permutations: Annotated[
        int,
        typer.Option(
            metavar="N",
            rich_help_panel=Panel.STATISTICS,
            help="Number of permutations of the labels; every permutation trains the probes "
            "again, and 19 are the fewest that can give p = .05.",
        ),
    ] = 19,
    resamples: Annotated[
        int,
        typer.Option(
            metavar="N",
            rich_help_panel=Panel.STATISTICS,
            help="Number of bootstrap resamples of the words.",
        ),
    ] = 499,
    # An end of a 90% interval is a one-sided 95% bound.
    level: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            rich_help_panel=Panel.STATISTICS,
            help="Confidence level of the intervals; at 0.9 each end is a one-sided 95% bound.",
        ),
    ] = 0.9,
    seed: Seed = 0,
    output: Output = None,
    json: Json = False,
    quiet: Quiet = False,
    batch_size: BatchSize = 32,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
) -> None:
    """Probe whether an edit removed a group or hid it.

    Looks for the group in a model's vectors after the edit, with words and texts that the edit was
    not fitted on. Exit 0 if the probes find it removed, 1 if it is hidden, 2 if it is unclear.
    """
    from levelhead.mitigate.evaluation.bias_reduction import estimate_bias_reduction
    from levelhead.mitigate.probing.concept_removal import (
        BiasReductionEvidence,
        ProbeConfig,
        concept_removal,
    )
    from levelhead.mitigate.projection.subspace import parse_pooling
    from levelhead.models.edits.files import load_edits
    from levelhead.models.loading.load import load

    group_names = groups.split(",") if groups else None
    fitted_texts = (
        *_fitted_words(edit, fitted_on),
        *(read_excluded_texts(fitted_on, group_names) if fitted_on else ()),
    )
    # An edit removes its fitting words by construction: only held-out words test it.
    test_pairs = _make_test_pairs(lexicon, texts, fitted_texts, group_names)
    parsed_sites = None if sites is None else [parse_site(site_text) for site_text in sites]
    edits = load_edits(edit)
    lm = load(
        model,
        revision=revision,
        device=device,
        dtype=dtype,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
    )
    inference = Inference(seed=seed, resamples=resamples, level=level)
    reduction = BiasReductionEvidence()
    if measure_name is not None:
        from levelhead.measures.registry import parse_measure

        measure = parse_measure(measure_name)
        with show_progress("queries", quiet=quiet) as on_event:
            gain = estimate_bias_reduction(
                measure, lm, edits, inference=inference, context=RunContext(progress=on_event)
            )
        reduction = BiasReductionEvidence(gain, measure.measure_key(lm))
    with show_steps(quiet=quiet) as on_step:
        report = concept_removal(
            lm,
            edits,
            test_pairs.pairs,
            fitted_on=fitted_texts,
            bias_reduction=reduction,
            probes=ProbeConfig(parsed_sites, parse_pooling(pooling), label_permutations),
            inference=inference,
            on_step=on_step,
        )
    write_result(report, lambda: _show(report, test_pairs), output=output, json=json)
    if report.verdict != "removed":
        raise ExitWithCode(FAIL if report.verdict == "hidden" else INCONCLUSIVE)


def _fitted_words(edit: str, exclude_words: str | None) -> tuple[str, ...]:
    """Read the words that an edit was fitted on from its folder."""
    from levelhead.core.errors import LevelheadError
    from levelhead.models.edits.files import read_fitted_words

    fitted_words = read_fitted_words(edit)
    # To assume none would let the edit be tested on its own words: the user must say so.
    if fitted_words is None and exclude_words is None:
        raise LevelheadError(
            f"{edit} does not record the words it was fitted on",
            hint="give --exclude-words: a .txt file, a lexicon as in mitigate project, or none",
        )
    return fitted_words or ()


def read_excluded_texts(
    exclude_words: str, groups: Sequence[str] | None
) -> tuple[str | ContrastPair, ...]:
    """Read the words, or the pairs of texts, that --exclude-words names.

    Args:
        exclude_words: the option's value: a .txt file, a lexicon with options, or "none".
        groups: two groups of the lexicon; None for its first two.

    Raises:
        LevelheadError: the file cannot be read, or the options are unknown.
    """
    from pathlib import Path

    from levelhead.core.errors import LevelheadError
    from levelhead.data.counterfactuals.contrast_pairs import contrast_pairs

    if exclude_words == NO_WORDS:
        return ()
    if exclude_words.endswith(".txt"):
        try:
            words = Path(exclude_words).read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeError) as error:
            raise LevelheadError(
                f"cannot read {exclude_words}: {error}", hint="check the path"
            ) from None
        return tuple(word.strip() for word in words if word.strip())
    name, _, options_text = exclude_words.partition(":")
    options = dict(pair.partition("=")[::2] for pair in filter(None, options_text.split(",")))
    if not all(key in ("n", "seed") and value.isdecimal() for key, value in options.items()):
        raise LevelheadError(
            f"--exclude-words {exclude_words}: {options_text!r} are no options of mitigate project",
            hint="write the options that made the edit, such as gender-en:n=60,seed=0",
        )
    # The same seed and n give the pairs that the edit was fitted on.
    n = int(options["n"]) if "n" in options else None
    return contrast_pairs(name, groups=groups, n=n, seed=int(options.get("seed", 0)))


def parse_site(text: str) -> Site:
    """Parse a site in its printed form: pooled, block_out 11, head_out 8.11.

    Args:
        text: the site.

    Raises:
        LevelheadError: the text is not a site.
    """
    import re

    from levelhead.core.errors import LevelheadError
    from levelhead.models.sites import STREAMS, Site, validate_site

    match = re.fullmatch(r"(\w+)(?:\s+(\d+)(?:\.(\d+))?)?", text.strip())
    if match is None:
        raise LevelheadError(f"{text!r} is not a site", hint="write pooled, or block_out 11")
    stream, layer, head = match.groups()
    return validate_site(
        Site(
            require_option("stream", stream, STREAMS),
            int(layer or 0),
            None if head is None else int(head),
        )
    )


def _make_test_pairs(
    lexicon: str,
    texts: list[str] | None,
    fitted_texts: tuple[str | ContrastPair, ...],
    groups: Sequence[str] | None,
) -> PairSet:
    from levelhead.data.corpus.reader import iter_sentences, split_corpus
    from levelhead.data.counterfactuals.held_out import held_out_pairs, held_out_pairs_from_texts

    if texts is None:
        return held_out_pairs(lexicon, fitted_on=fitted_texts, groups=groups)
    corpus_sentences = (
        sentence for piece in split_corpus(texts) for sentence in iter_sentences(piece)
    )
    return held_out_pairs_from_texts(
        corpus_sentences, lexicon, fitted_on=fitted_texts, groups=groups
    )


def _show(report: RemovalReport, test_pairs: PairSet) -> None:
    """Print the verdict, the results before and after the edit, and what was left out."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from levelhead.core.calibration import DAGGER_NOTE, failed_calibration_mark
    from levelhead.models.sites import Site

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
    console.print(Text(f"{report.verdict}: {report.reason}"), soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("site", "probe", "before", "interval", "after", "interval", "detectable", "p"):
        left = name in ("site", "probe", "interval")
        table.add_column(name, justify="left" if left else "right")
    for site_result in report.sites:
        site_text = f"{Site(*site_result.site)} ({site_result.pooling})"
        for before_probe, after_probe in zip(
            site_result.before.probes, site_result.after.probes, strict=True
        ):
            table.add_row(site_text, *_cells(before_probe.auc, after_probe.auc))
        accuracies = (
            result.clusters.accuracy for result in (site_result.before, site_result.after)
        )
        table.add_row(site_text, *_cells(*accuracies))
    console.print(table)
    lines = [f"{report.n} pairs of texts, {report.words} words with their counterfactuals"]
    lines += [f"left out: {count} ({reason})" for reason, count in test_pairs.left_out]
    lines += (
        [f"{len(report.dropped)} pairs dropped: the model cannot read them"]
        if report.dropped
        else []
    )
    lines += [] if report.bias_reduction is None else [f"measure: {report.bias_reduction}"]
    lines += [f"measure: {DAGGER_NOTE}"] if failed_calibration_mark(report.bias_measure) else []
    for note in (*lines, *report.notes):
        console.print(Text(note), soft_wrap=True)
    # A probe that finds nothing proves nothing about other probes: the claim keeps its scope.
    console.print(Text("this result holds for these probes, words and sites only"), soft_wrap=True)


def _cells(before: Estimate, after: Estimate) -> tuple[str, ...]:
    # Detectable effects are distances from parity, which is .5 for an AUC and an accuracy.
    min_shown_text = "" if after.detectable is None else f"{0.5 + after.detectable:.2f}"
    return (
        after.name,
        f"{before.value:.3f}",
        str(before.interval),
        f"{after.value:.3f}",
        str(after.interval),
        min_shown_text,
        "" if after.p is None else f"{after.p.value:.3g}",
    )
