"""The same work beside other systems: equal numbers, and CPU time in one run.

    uv pip install --group peers
    python benchmarks/peers.py [--quick]

lm_eval   lm-evaluation-harness and levelhead score all CrowS pairs with SmolLM2-135M: one model in
          memory, float32, batches of 32, the same beginning token. `difference` is the largest of
          the log-likelihoods, relative; `ratio` our CPU time over theirs, after loading.
minicons  pseudo-log-likelihoods of CrowS sentences by minibert, the largest relative difference.

One thread. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import tempfile
import time
from pathlib import Path

from levelhead.core.run_context import RunContext

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
ROOT = Path(__file__).parents[1]
ASSETS = Path(os.environ.get("LEVELHEAD_ASSETS", ROOT.parent / "shared"))
os.environ.setdefault("LEVELHEAD_DATA", str(ASSETS / "data"))
sys.path.insert(0, str(ROOT / "tests" / "work"))

import torch  # noqa: E402
from assets import smollm2  # noqa: E402

from levelhead.data.catalog.datasets import dataset  # noqa: E402
from levelhead.measures.likelihood.crows import Crows  # noqa: E402
from levelhead.models.loading.load import load  # noqa: E402

BATCH = 32
TASK = """
task: crows_pairs_local
dataset_path: json
dataset_kwargs:
  data_files: {file}
test_split: train
output_type: multiple_choice
doc_to_text: ""
target_delimiter: ""
doc_to_choice: "{{{{[more, less]}}}}"
doc_to_target: 0
metric_list:
  - metric: acc
"""


def beside_lm_eval(pairs: list) -> dict[str, float]:
    """CrowS pairs scored by both, on one model."""
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    lm = load(smollm2(), bos="always", batch_size=BATCH)
    peer = HFLM(
        pretrained=lm.layout.model,
        tokenizer=lm.tokens.tokenizer,
        backend="causal",
        batch_size=BATCH,
        device="cpu",
        prefix_token_id=lm.tokens.bos,
    )
    measure = Crows(tuple(pairs), protocol="sentence")
    texts = [pair.more for pair in pairs[:BATCH]]
    lm.log_prob(texts)  # the first forward of a process is slower, whoever runs it
    began = time.process_time()
    (result,) = measure.read(lm, context=RunContext(store=f"memory://{secrets.token_hex(8)}"))
    ours = time.process_time() - began
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "pairs.jsonl"
        rows.write_text(
            "\n".join(json.dumps({"more": pair.more, "less": pair.less}) for pair in pairs)
        )
        Path(folder, "crows.yaml").write_text(TASK.format(file=rows))
        tasks = TaskManager(include_path=folder, include_defaults=False)
        began = time.process_time()
        output = simple_evaluate(
            model=peer,
            tasks=["crows_pairs_local"],
            task_manager=tasks,
            log_samples=True,
            bootstrap_iters=0,
            batch_size=BATCH,
        )
        theirs = time.process_time() - began
    samples = sorted(output["samples"]["crows_pairs_local"], key=lambda single: single["doc_id"])
    scores = [[float(answer[0]) for answer in sample["filtered_resps"]] for sample in samples]
    by_id = dict(
        zip([item.id for item in result.items], result.values[..., 0].tolist(), strict=True)
    )
    off = [
        abs(a - b) / abs(b)
        for pair, both in zip(pairs, scores, strict=True)
        for a, b in zip(by_id[pair.id], both, strict=True)
    ]
    return {
        "pairs": len(pairs),
        "difference": max(off),
        "seconds_levelhead": round(ours, 1),
        "seconds_lm_eval": round(theirs, 1),
        "ratio": round(ours / theirs, 3),
    }


def beside_minicons(texts: list[str]) -> dict[str, float]:
    """Pseudo-log-likelihoods of both, each with its own copy of the model."""
    from minicons.scorer import MaskedLMScorer
    from transformers import AutoTokenizer, BertForMaskedLM

    folder = ASSETS / "models" / "minibert-en"
    model = BertForMaskedLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    # minicons calls a method that transformers 5 has dropped; it was another name for the call.
    tokenizer.batch_encode_plus = tokenizer.__call__
    peer = MaskedLMScorer(model, "cpu", tokenizer=tokenizer, PLL_metric="original")
    theirs = [
        float(score)
        for i in range(0, len(texts), 10)
        for score in peer.sequence_score(
            texts[i : i + 10], reduction=lambda single: single.sum(0).item()
        )
    ]
    ours = load(folder).log_prob(texts).value.tolist()
    off = [abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True)]
    return {"texts": len(texts), "difference": max(off)}


def main() -> None:
    """Both peers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a twentieth of the pairs")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    pairs = list(dataset("crows-pairs").items("all"))[:: 20 if quick else 1]
    texts = [pair.more for pair in pairs[:: 4 if quick else 15]]
    result = {"minicons": beside_minicons(texts), "lm_eval": beside_lm_eval(pairs)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
