"""`levelhead removed MODEL --edit EDIT`: did an edit remove the group, or hide it?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.exit_codes import FAIL, INCONCLUSIVE, ExitWith
from levelhead.cli.shared.options import (
    AllowPickle,
    BatchSize,
    Device,
    Dtype,
    Json,
    Model,
    Output,
    Revision,
)
from levelhead.cli.shared.output import told
from levelhead.cli.shared.progress import progress, steps
from levelhead.core.run_context import Inference, RunContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.calibration import Ruler
    from levelhead.core.results import Estimate
    from levelhead.data.counterfactuals.contrast_pairs import SwappedPairs, TextPair
    from levelhead.mitigate.probing.concept_removal import Removed
    from levelhead.models.sites import Site

NOTHING = "none"


def removed(
    model: Model,
    edit: Annotated[str, typer.Option(help="A folder that save_edits wrote.")],
    seen: Annotated[
        str | None,
        typer.Option(
            help="What else the edit was fitted or chosen on: a .txt file with a word a line; a "
            "lexicon, with the options of mitigate project (gender-en:n=60,seed=0); or none. What "
            "the edit's folder says of itself always counts."
        ),
    ] = None,
    lexicon: Annotated[
        str, typer.Option(help="A lexicon's name or TOML file: whose groups are looked for.")
    ] = "gender-en",
    groups: Annotated[
        str | None, typer.Option(help="Two of its groups, with a comma; by default the first two.")
    ] = None,
    texts: Annotated[
        list[str] | None,
        typer.Option(
            help="Sentences to ask of instead of frames: files, globs or URLs (.txt, .tsv, "
            ".jsonl, .parquet) that the edit was not fitted on."
        ),
    ] = None,
    ruler: Annotated[
        str | None,
        typer.Option(
            "--measure", "-m", help="The measure that the edit is to mitigate: did it fall?"
        ),
    ] = None,
    sites: Annotated[
        list[str] | None,
        typer.Option(
            "--site",
            help="Where to look, such as pooled or 'block_out 11'; by default where "
            "the model's heads read.",
        ),
    ] = None,
    at: Annotated[str | None, typer.Option(help="Tokens read: first, mean, word, last.")] = None,
    deals: Annotated[int, typer.Option(help="How often labels are dealt anew.")] = 19,
    draws: Annotated[int, typer.Option(help="Resamples of the words.")] = 499,
    level: Annotated[float, typer.Option(help="Of the intervals, whose ends are bounds.")] = 0.9,
    seed: Annotated[int, typer.Option(help="Of folds, deals and resamples.")] = 0,
    output: Output = None,
    json: Json = False,
    batch_size: BatchSize = 32,
    revision: Revision = None,
    device: Device = None,
    dtype: Dtype = "float32",
    allow_pickle: AllowPickle = False,
) -> None:
    """Look for a group in a model's vectors after an edit, by words and texts it never met.

    Exit 0 if it was removed as far as the probes can tell, 1 if it is hidden, 2 if it is unclear.
    """
    from levelhead.mitigate.evaluation.single_edit_gain import gain_by
    from levelhead.mitigate.probing.concept_removal import removed as judged
    from levelhead.models.edits.files import load_edits
    from levelhead.models.loading.load import load

    named = groups.split(",") if groups else None
    used = (*_said(edit, seen), *(seen_by(seen, named) if seen else ()))
    asked = _asked(lexicon, texts, used, named)
    where = None if sites is None else [site_of(one) for one in sites]
    edits = load_edits(edit)
    lm = load(
        model,
        revision=revision,
        device=device,
        dtype=dtype,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
    )
    inference = Inference(seed=seed, resamples=draws, level=level)
    gain: Estimate | None = None
    by: Ruler | None = None
    if ruler is not None:
        from levelhead.measures.registry import parsed

        measure = parsed(ruler)
        by = measure.ruler(lm)
        with progress("questions") as on_event:
            gain = gain_by(
                measure, lm, edits, inference=inference, context=RunContext(progress=on_event)
            )
    with steps() as tell:
        found = judged(
            lm,
            edits,
            asked.pairs,
            seen=used,
            ruler=gain,
            gain_by=by,
            sites=where,
            at=at,  # type: ignore[arg-type]  # reading checks it
            deals=deals,
            inference=inference,
            on_step=tell,
        )
    told(found, lambda: _show(found, asked), output=output, json=json)
    if found.verdict != "removed":
        raise ExitWith(FAIL if found.verdict == "hidden" else INCONCLUSIVE)


def _said(edit: str, seen: str | None) -> tuple[str, ...]:
    """The words that an edit's folder says it was fitted on."""
    from levelhead.core.errors import LevelheadError
    from levelhead.models.edits.files import seen_by_edits

    own = seen_by_edits(edit)
    if own is None and seen is None:
        raise LevelheadError(
            f"{edit} does not say which words it was fitted on",
            mend="give --seen: a .txt file, a lexicon as in mitigate project, or none",
        )
    return own or ()


def seen_by(seen: str, groups: Sequence[str] | None) -> tuple[str | TextPair, ...]:
    """The words, or the pairs of texts, that --seen means."""
    from pathlib import Path

    from levelhead.core.errors import LevelheadError
    from levelhead.data.counterfactuals.contrast_pairs import paired

    if seen == NOTHING:
        return ()
    if seen.endswith(".txt"):
        try:
            words = Path(seen).read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeError) as error:
            raise LevelheadError(f"cannot read {seen}: {error}", mend="check the path") from None
        return tuple(word.strip() for word in words if word.strip())
    name, _, rest = seen.partition(":")
    options = dict(pair.partition("=")[::2] for pair in filter(None, rest.split(",")))
    if not all(key in ("n", "seed") and value.isdigit() for key, value in options.items()):
        raise LevelheadError(
            f"--seen {seen}: {rest!r} are no options of mitigate project",
            mend="write gender-en:n=60,seed=0, as the edit was made",
        )
    n = int(options["n"]) if "n" in options else None
    return paired(name, groups=groups, n=n, seed=int(options.get("seed", 0)))


def site_of(text: str) -> Site:
    """A site as it is printed: pooled, block_out 11, head_out 8.11."""
    import re

    from levelhead.core.errors import LevelheadError
    from levelhead.models.sites import Site, checked

    match = re.fullmatch(r"(\w+)(?:\s+(\d+)(?:\.(\d+))?)?", text.strip())
    if match is None:
        raise LevelheadError(f"{text!r} is no site", mend="write pooled, or block_out 11")
    stream, layer, head = match.groups()
    found = Site(stream, int(layer or 0), None if head is None else int(head))  # type: ignore[arg-type]
    return checked(found)


def _asked(
    lexicon: str,
    texts: list[str] | None,
    used: tuple[str | TextPair, ...],
    groups: Sequence[str] | None,
) -> SwappedPairs:
    from levelhead.data.corpus.reader import pieces, sentences
    from levelhead.data.counterfactuals.held_out import held_out, held_out_texts

    if texts is None:
        return held_out(lexicon, seen=used, groups=groups)
    found = (one for piece in pieces(texts) for one in sentences(piece))
    return held_out_texts(found, lexicon, seen=used, groups=groups)


def _show(found: Removed, asked: SwappedPairs) -> None:
    """The verdict, a table of what was found before and after, and what was left out."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from levelhead.core.calibration import MISSED, mark_of
    from levelhead.models.sites import Site

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
    console.print(Text(f"{found.verdict}: {found.why}"), soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("site", "what", "before", "interval", "after", "interval", "least shown", "p"):
        left = name in ("site", "what", "interval")
        table.add_column(name, justify="left" if left else "right")
    for place in found.places:
        where = f"{Site(*place.site)} ({place.at})"  # type: ignore[arg-type]
        for one, two in zip(place.before.probes, place.after.probes, strict=True):
            table.add_row(where, *_cells(one.auc, two.auc))
        both = (own.clusters.accuracy for own in (place.before, place.after))
        table.add_row(where, *_cells(*both))
    console.print(table)
    told = [f"{found.n} pairs of texts, {found.words} words with their twins"]
    told += [f"left out: {count} ({reason})" for reason, count in asked.left_out]
    told += [f"{len(found.dropped)} pairs cannot be read by the model"] if found.dropped else []
    told += [] if found.ruler is None else [f"ruler: {found.ruler}"]
    told += [f"ruler: {MISSED}"] if mark_of(found.gain_by) else []
    for note in (*told, *found.notes):
        console.print(Text(note), soft_wrap=True)
    console.print(Text("said of these probes, words and sites, and of no others"), soft_wrap=True)


def _cells(before: Estimate, after: Estimate) -> tuple[str, ...]:
    least = "" if after.detectable is None else f"{0.5 + after.detectable:.2f}"
    return (
        after.name,
        f"{before.value:.3f}",
        str(before.interval),
        f"{after.value:.3f}",
        str(after.interval),
        least,
        "" if after.p is None else f"{after.p.value:.3g}",
    )
