"""What locating costs beside plain forwards, as ratios of CPU time in one run.

    python benchmarks/locate.py [--quick] [--model DIR]

gradient       all heads' gradient in a single graph / the bare forwards of the same rows
two_pass       read, then the second pass with its backward / the same
ablation       exact ablation of every head / heads x the bare forwards; answers of a few heads are
               compared with those of whole forwards of the edited model (`ablation_difference`)
memory_growth  peak memory of the two passes over ten times as many sentences / over as many: 20,000
               and 2,000 (with --quick 2,000 and 200), each in a process of its own, stored on disk
memory_mb      these two peaks
base           the ratios for a random model of bert-base's size (not with --quick)

SEAT of the middle words of Wikinews sentences (LEVELHEAD_ASSETS), 32 in a batch, one thread. The
sides of a ratio take turns over pieces of the same sentences, so that what else the machine does
hits all alike. For the memory, all sentences but 32 are cut to a few words: it costs less time, and
what is kept for a sentence does not depend on its length. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import secrets
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, final

import torch
from forward import ASSETS, BATCH, CORPUS, bert_base

from levelhead.core.canonical_json import content_hash
from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import RunContext
from levelhead.locate.attribution.ablation import AblationVariant
from levelhead.locate.attribution.answer_index import index_answers
from levelhead.locate.attribution.gradient import compute_gradient
from levelhead.locate.attribution.variants import read_variants
from levelhead.measures.base import Measure
from levelhead.measures.embedding.seat import Seat
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.responses import build_query
from levelhead.models.edits.base import HeadScale
from levelhead.models.inputs.batching import make_batch
from levelhead.models.lm import LM
from levelhead.models.loading.load import load
from levelhead.models.sites import Site

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "work"))

from one_graph import compute_gradient_in_one_graph

if TYPE_CHECKING:
    from levelhead.measures.metric import Metric

WORDS = 16
"""How many words the sentences are contexts of, a quarter of them in each of SEAT's lists."""
SHORT, LONG = 4, 40
"""Words of a sentence where memory is measured, and of the few that make the largest batches."""
EVERY = 5
"""Ablated forwards between two bare ones: no divisor of the heads in a layer."""


@final
@dataclass(frozen=True)
class Middles(Measure):
    """SEAT of given contexts: the middle words of sentences, dealt to made-up words in turn."""

    texts: tuple[str, ...]
    needs: ClassVar = ("embeddings",)

    @property
    def formulas(self) -> tuple[Metric, ...]:
        """SEAT's."""
        return Seat().formulas

    @property
    def data(self) -> dict[str, str]:
        """The sentences."""
        return {"sentences": content_hash(list(self.texts))}

    def is_sampled(self, item: MeasureItem) -> bool:
        """As SEAT."""
        return item.group in "XY"

    def all_queries(self, lm) -> tuple[QuerySet, ...]:
        """The vector of every sentence's middle word."""
        items = []
        for number in range(WORDS):
            name = f"{'XYAB'[number % 4]}: {number}"
            asks = tuple((text, *middle(text)) for text in self.texts[number::WORDS])
            items.append(MeasureItem(name, asks, (name,), name[0]))
        settings = FrozenDict({"pooling": None})
        return (QuerySet("embed", settings, ("words",), tuple(items), average_answers=True),)


def middle(text: str) -> tuple[int, int]:
    """Where the middle word stands."""
    words = text.split(" ")
    before = words[: len(words) // 2]
    start = sum(map(len, before)) + len(before)
    return start, start + len(words[len(before)])


def sentences(wanted: int, longest: int) -> tuple[str, ...]:
    """Different sentences of the corpus, cut where they are longer; spread over the file."""
    lines = CORPUS.read_text(encoding="utf-8").splitlines()
    result = (line.split("\t")[1].split() for line in lines)
    texts = list(dict.fromkeys(" ".join(item[:longest]) for item in result if len(item) > 3))
    # A corpus that is too short is gone through again with another word in front.
    fronts = ("", *(f"{number} " for number in range(wanted // len(texts))))
    full = [front + text for front in fronts for text in texts]
    return tuple(full[:: len(full) // wanted][:wanted])


def fresh() -> str:
    """An empty store in memory."""
    return f"memory://{secrets.token_hex(8)}"


def timed(sides, pieces, repeats: int) -> list[float]:
    """CPU time of several functions, taken in turns over pieces of the same work."""
    for run in sides:
        run(pieces[0])  # for warming up
    spent = [0.0] * len(sides)
    for _ in range(repeats):
        for piece in pieces:
            for side, run in enumerate(sides):
                began = time.process_time()
                run(piece)
                spent[side] += time.process_time() - began
    return spent


def plain_result(lm, measure: Middles):
    """The bare forwards of all rows of a piece, in the batches that reading it makes."""
    result = measure.read(lm, context=RunContext(store=fresh()))[0]
    requested = index_answers(lm, measure, result)
    question, _ = build_query(
        lm, requested.query_set.query_kind, requested.queries, requested.query_set.settings
    )
    rows = question.query.rows
    batches = [indices for indices, _ in lm.batching.run_batches(rows, lambda indices: indices)]

    def forward() -> None:
        with torch.no_grad():
            for indices in batches:
                batch = make_batch(rows, indices, pad=lm.tokens.pad, device=lm.device)
                lm.layout.backbone(**batch.inputs)

    return result, forward


def gradients(lm, texts, size: int, repeats: int) -> dict[str, float]:
    """Both ways to the gradient beside bare forwards."""
    measures = [Middles(texts[i : i + size]) for i in range(0, len(texts), size)]
    pieces = [(measure, *plain_result(lm, measure)) for measure in measures]

    def two_pass(piece) -> None:
        store = fresh()
        compute_gradient(
            lm,
            piece[0],
            piece[0].read(lm, context=RunContext(store=store))[0],
            context=RunContext(store=store),
        )

    sides = (
        lambda piece: piece[2](),
        lambda piece: compute_gradient_in_one_graph(lm, *piece[:2]),
        two_pass,
    )
    bare, single, double = timed(sides, pieces, repeats)
    return {"gradient": round(single / bare, 3), "two_pass": round(double / bare, 3)}


@contextmanager
def between(forward, every: int):
    """Run something after every few answers of a model; yields the CPU times of it.

    A forward is short beside all ablations: timed before and after them it would meet another
    machine.
    """
    answer, times, calls = LM.run_rows, [], count(1)

    def answering(self, *given, **options):
        result = answer(self, *given, **options)
        if next(calls) % every == 0:
            began = time.process_time()
            forward()
            times.append(time.process_time() - began)
        return result

    LM.run_rows = answering
    try:
        yield times
    finally:
        LM.run_rows = answer


def ablation(lm, texts, size: int, repeats: int) -> dict[str, float]:
    """All heads one by one, layers below them shared, beside as many whole forwards."""
    heads = [(i, j) for i in range(lm.layout.layers) for j in range(lm.layout.heads)]
    sites = [Site("head_out", *head) for head in heads]
    variants = [AblationVariant((site,)) for site in sites]
    measures = [Middles(texts[i : i + size]) for i in range(0, len(texts), size)]
    pieces = [(measure, *plain_result(lm, measure)) for measure in measures]
    shared = bare = 0.0
    for _ in range(repeats):
        for measure, result, forward in pieces:
            forward()
            with between(forward, EVERY) as marks:
                began = time.process_time()
                varied = read_variants(
                    lm, measure, result, variants, context=RunContext(store=fresh())
                )
                full = time.process_time() - began
            shared += full - sum(marks)
            bare += sum(marks) / len(marks)
    apart = max(
        naive(lm, measure, result, varied, i) for i in range(0, len(sites), len(sites) // 3)
    )
    assert apart < 1e-5, f"shared and whole forwards differ by {apart}"
    return {"ablation": round(shared / (len(sites) * bare), 3), "ablation_difference": apart}


def naive(lm, measure: Middles, result, varied, number: int) -> float:
    """How far a head's ablation is from whole forwards of the edited model."""
    requested = index_answers(lm, measure, result)
    question, _ = build_query(
        lm, requested.query_set.query_kind, requested.queries, requested.query_set.settings
    )
    edited = lm.edited(HeadScale(varied.variants[number].sites, 0))
    literal = requested.values(question.run(edited), result.values)
    return float((varied.responses_of(number).values - literal).abs().max() / literal.abs().max())


def peak(model: Path, size: int, output) -> None:
    """In a process of its own: both passes over so many sentences; tells the peak in KB."""
    # The same long sentences whatever the size, so that the largest batch is the same.
    longest = sorted(sentences(200, LONG), key=len, reverse=True)[:BATCH]
    measure = Middles((*longest, *sentences(size - BATCH, SHORT)))
    lm = load(model, batch_size=BATCH)
    with tempfile.TemporaryDirectory() as folder:
        compute_gradient(
            lm,
            measure,
            measure.read(lm, context=RunContext(store=folder))[0],
            context=RunContext(store=folder),
        )
    output.put(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def peaks(model: Path, sizes: tuple[int, int]) -> list[float]:
    """Peak memory for each number of sentences, in MB."""
    # Forked while this process holds nothing but imports: a child's peak begins with its parent's.
    apart = multiprocessing.get_context("fork")
    result = []
    for size in sizes:
        simple_queue = apart.SimpleQueue()
        child = apart.Process(target=peak, args=(model, size, simple_queue))
        child.start()
        child.join()
        assert child.exitcode == 0, f"the two passes over {size} sentences failed"
        result.append(simple_queue.get() / 1024)
        print(f"{size} sentences: {result[-1]:.0f} MB", flush=True)
    return result


def main() -> None:
    """Print the ratios as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a slice, within 40 seconds")
    parser.add_argument("--model", type=Path, default=ASSETS / "models/minibert-en")
    given = parser.parse_args()
    torch.set_num_threads(1)
    few, many = peaks(given.model, (200, 2_000) if given.quick else (2_000, 20_000))
    lm = load(given.model, batch_size=BATCH)
    texts = sentences(*(64, 24) if given.quick else (512, 60))
    result: dict[str, object] = {
        **gradients(lm, texts, 32 if given.quick else 128, 2 if given.quick else 3),
        **ablation(lm, texts[:16] if given.quick else texts[:96], 16 if given.quick else 32, 1),
        "memory_growth": round(many / few, 3),
        "memory_mb": [round(few), round(many)],
    }
    if not given.quick:
        with tempfile.TemporaryDirectory() as folder:
            base = load(bert_base(Path(folder), lm.tokens.tokenizer), batch_size=BATCH)
            result["base"] = {
                **gradients(base, texts[:64], 32, 2),
                **ablation(base, texts[:16], 16, 1),
            }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
