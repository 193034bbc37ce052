"""What our forward costs beside the bare one of transformers, as ratios of CPU time in one run.

    python benchmarks/forward.py [--quick] [--model DIR]

hooks          every layer edited and a word read / the bare forward over the same batches
attention_row  one attention row a sentence, all layers and heads / the bare forward
bucketing      file order / batches of one length, both bare, outputs equal
fill           one mask a sentence filled / the bare forward with scores at every token
help_seconds   CPU seconds of `levelhead --help`
base           the same for a random model of bert-base's size (not with --quick)

Sentences: Wikinews in the assets folder (LEVELHEAD_ASSETS), 32 in a batch, one thread. The two
sides of a ratio take turns batch by batch, so that what else the machine does hits both alike.
The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import transformers

from levelhead.models.edits.base import HeadScale
from levelhead.models.inputs.batching import make_batch, sorted_by_length
from levelhead.models.loading.load import load
from levelhead.models.queries import build as queries
from levelhead.models.queries.query import LogProbs, Query, ScoredPosition
from levelhead.models.sites import Site

ASSETS = Path(os.environ.get("LEVELHEAD_ASSETS", Path(__file__).parents[2] / "shared"))
CORPUS = ASSETS / "data/news-corpus-standin/amalgum_wikinews_news.tsv"
BATCH = 32


def sentences(count: int) -> list[str]:
    """Sentences of the corpus, every n-th, in the order of the file."""
    lines = CORPUS.read_text(encoding="utf-8").splitlines()
    texts = [line.split("\t")[1] for line in lines if len(line.split("\t")[1].split()) > 3]
    return texts[:: max(1, len(texts) // count)][:count]


def ratio(first, second, pieces, repeats: int) -> float:
    """CPU time of one function over another's, taken in turns over pieces of the same work."""
    for run in (first, second):
        run(pieces[0])
    times = [[0.0, 0.0] for _ in pieces]
    for _ in range(repeats):
        for piece, spent in zip(pieces, times, strict=True):
            for side, run in enumerate((first, second)):
                began = time.process_time()
                run(piece)
                spent[side] += time.process_time() - began
    return sum(a for a, _ in times) / sum(b for _, b in times)


def measured(lm, texts: list[str], repeats: int) -> dict[str, float]:
    """All ratios for one model."""
    encoded = lm.tokens.encode(texts)
    middles = [item.word_positions()[len(item.word_positions()) // 2] for item in encoded]
    spans = [single.offsets[i] for single, i in zip(encoded, middles, strict=True)]
    reading = queries.build_lm_embedding_query(lm, texts, spans, None)
    rows, order = reading.rows, sorted_by_length(reading.rows)
    batches = [order[i : i + BATCH] for i in range(0, len(order), BATCH)]
    device, pad = lm.device, lm.tokens.pad

    def bare(indices):
        batch = make_batch(rows, indices, pad=pad, device=device)
        return lm.layout.backbone(**batch.inputs).last_hidden_state

    anatomy = lm.layout
    edited = lm.edited(
        HeadScale([Site("head_out", layer, 0) for layer in range(anatomy.layers)], 0)
    )
    rows_of_attention = queries.build_lm_attention_query(lm, texts, spans)

    mask = lm.tokens.mask
    masked = Query(
        tuple(
            row._replace(ids=(*row.ids[:i], mask, *row.ids[i + 1 :]))
            for row, i in zip(rows, middles, strict=True)
        ),
        LogProbs(
            tuple(
                (ScoredPosition(i, (row.ids[i],), (0,)),)
                for row, i in zip(rows, middles, strict=True)
            ),
            columns=1,
        ),
    )

    def full_scores(indices):
        batch = make_batch(masked.rows, indices, pad=pad, device=device)
        return anatomy.model(**batch.inputs)

    result = {
        "hooks": ratio(lambda b: edited.run_rows(reading, b), bare, batches, repeats),
        "attention_row": ratio(lambda b: lm.run_rows(rows_of_attention, b), bare, batches, repeats),
        "fill": ratio(lambda b: lm.run_rows(masked, b), full_scores, batches, repeats),
    }
    # The same number of batches on both sides, file order against sorted; outputs compared.
    files = [list(range(i, min(i + BATCH, len(rows)))) for i in range(0, len(rows), BATCH)]
    pairs = list(zip(files, batches, strict=True))
    result["bucketing"] = ratio(lambda p: bare(p[0]), lambda p: bare(p[1]), pairs, repeats)
    first = torch.empty(len(rows), anatomy.width)
    second = torch.empty(len(rows), anatomy.width)
    for file, batch in pairs:
        first[file] = bare(file)[:, 0]
        second[batch] = bare(batch)[:, 0]
    difference = float((first - second).abs().max() / second.abs().max())
    assert difference < 1e-4, f"file order and sorted batches differ by {difference}"
    return {name: round(value, 3) for name, value in result.items()} | {
        "max_difference": difference
    }


def bert_base(folder: Path, tokenizer) -> Path:
    """A random model of bert-base's size with both heads."""
    torch.manual_seed(0)
    transformers.logging.disable_progress_bar()
    transformers.BertForPreTraining(transformers.BertConfig()).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def help_seconds() -> float:
    """Least CPU time of `levelhead --help` in three runs."""
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "levelhead", "--help"], check=True, stdout=subprocess.DEVNULL
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return round(min(spent), 3)


@torch.no_grad()
def main() -> None:
    """Print the ratios as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a slice, within 50 seconds")
    parser.add_argument("--model", type=Path, default=ASSETS / "models/minibert-en")
    given = parser.parse_args()
    torch.set_num_threads(1)
    lm = load(given.model, batch_size=BATCH)
    texts = sentences(256 if given.quick else 1024)
    result = measured(lm, texts, repeats=1 if given.quick else 2)
    result["help_seconds"] = help_seconds()
    if not given.quick:
        with tempfile.TemporaryDirectory() as folder:
            base = load(bert_base(Path(folder), lm.tokens.tokenizer), batch_size=BATCH)
            result["base"] = measured(base, sentences(256), repeats=2)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
