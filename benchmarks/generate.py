"""What generation costs beside the bare one of transformers, as ratios of CPU time in one run.

    python benchmarks/generate.py [--quick] [--model DIR]

transformers   LM.generate / the bare `generate` of transformers over the same batches, greedy
sampled        the same, sampled by each
edited         LM.generate with heads of every layer scaled / the bare `generate`
own_loop       a full forward pass for each token, without a cache / the bare `generate`
vllm           VllmModel.generate / vLLM's own `generate` of the same prompts; null without vLLM
choose_shared  LM.choose with three answers to a prompt / the log-probability of each as a text

SmolLM2-135M-Instruct, chat requests of different lengths, one thread. The model never ends a text
here, so that all sides generate the same number of tokens. The sides of a ratio take turns batch
by batch, so that what else the machine does hits them alike. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "work"))

import torch
import transformers
from assets import smollm2
from slow_generation import generate_slowly

from levelhead.core.frozen import FrozenDict
from levelhead.models.edits.base import HeadScale
from levelhead.models.generation import in_process
from levelhead.models.generation.config import GenerationConfig
from levelhead.models.inputs.chat import ChatFormat
from levelhead.models.loading.load import load
from levelhead.models.serving.vllm_model import VllmModel
from levelhead.models.sites import Site

JOBS = ("nurse", "plumber", "teacher", "judge", "pilot", "cook", "farmer", "clerk", "nun", "guard")
REQUESTS = (
    "Describe the day of a {}.",
    "Write a short story about a {} who moves to a small town by the sea.",
    "Why would somebody become a {}? Give three reasons, and explain each of them in a sentence.",
    "A {} and a friend meet in the evening. What do they talk about?",
    "Give advice to a young {} who has just begun to work, is tired, and does not know whom to ask "
    "for help when something goes wrong.",
)
CONTEXT = (
    "I saw a {job} and a manager at the {place} yesterday evening, in the rain, after the last "
    "bus had left and the shops were closed. One of them was on the phone all the time.\n"
    "Who was on the phone?\nAnswer:"
)
PLACES = ("bus stop", "station", "market")
OPTIONS = (" The {job}", " The manager", " Not enough information")


def ratios(sides, pieces, repeats: int) -> tuple[list[float], float]:
    """CPU time of each side over that of the first, taken in turns, and that of the first."""
    for run in sides:
        run(pieces[0][:1])  # warm-up
    spent = [0.0] * len(sides)
    for _ in range(repeats):
        for piece in pieces:
            for number, run in enumerate(sides):
                began = time.process_time()
                run(piece)
                spent[number] += time.process_time() - began
    return [round(value / spent[0], 3) for value in spent[1:]], spent[0]


def bare_generate(lm, prompts, n_tokens, *, is_sampled: bool):
    """The tokens of transformers alone, from the same batch."""
    rows = in_process.encode_prompts(lm, prompts, GenerationConfig(n_tokens))
    width = max(len(row.ids) for row in rows)
    inputs = in_process._pad_left(lm, rows, width)
    sampling = {"do_sample": True, "top_k": 0} if is_sampled else {"do_sample": False}
    with torch.no_grad():
        sequences = lm.layout.model.generate(
            **inputs,
            generation_config=transformers.GenerationConfig(
                max_new_tokens=n_tokens, pad_token_id=lm.tokens.pad, **sampling
            ),
        )
    return sequences[:, width:].tolist()


def measure_generation(lm, batches, n_tokens: int, repeats: int) -> dict[str, float]:
    """Ratios of generation."""
    greedy, sampled = GenerationConfig(n_tokens, 0), GenerationConfig(n_tokens)
    edited = lm.edited(
        HeadScale([Site("head_out", layer, 0) for layer in range(lm.layout.layers)], 0.5)
    )

    def ours(model, config):
        return lambda prompts: in_process.generate_texts(model, prompts, [0] * len(prompts), config)

    def bare(prompts):
        return bare_generate(lm, prompts, n_tokens, is_sampled=False)

    first = batches[0][:2]  # equal work: the same tokens
    assert [list(text.ids) for text in ours(lm, greedy)(first)] == bare(first)
    (plain, with_edit), seconds = ratios(
        [bare, ours(lm, greedy), ours(edited, greedy)], batches, repeats
    )
    ((with_sampling,), _) = ratios(
        [lambda p: bare_generate(lm, p, n_tokens, is_sampled=True), ours(lm, sampled)],
        batches[:1],
        repeats,
    )
    short = [prompts[:4] for prompts in batches[:1]]
    ((loop,), _) = ratios(
        [bare, lambda prompts: generate_slowly(lm, prompts, [0] * len(prompts), greedy)], short, 1
    )
    n_generated = n_tokens * sum(map(len, batches)) * repeats
    return {
        "transformers": plain,
        "sampled": with_sampling,
        "edited": with_edit,
        "own_loop": loop,
        "bare_seconds_per_1000_tokens": round(1000 * seconds / n_generated, 2),
    }


def measure_choice(lm, n_places: int, repeats: int) -> float:
    """Three answers that share a prompt, against three texts."""
    pieces = [
        [
            (CONTEXT.format(job=job, place=place), [option.format(job=job) for option in OPTIONS])
            for job in JOBS
        ]
        for place in PLACES[:n_places]
    ]

    def separately(items):
        columns = []
        for number in range(len(OPTIONS)):
            texts = [prompt + options[number] for prompt, options in items]
            spans = [
                [(len(prompt) + 1, len(text))]
                for (prompt, _), text in zip(items, texts, strict=True)
            ]
            columns.append(lm.log_prob(texts, spans).value)
        return torch.stack(columns, dim=1)

    def together(items):
        return lm.choose([prompt for prompt, _ in items], [options for _, options in items])

    torch.testing.assert_close(together(pieces[0]), separately(pieces[0]), atol=1e-3, rtol=1e-4)
    ((value,), _) = ratios([separately, together], pieces, repeats)
    return value


def measure_vllm(lm, prompts: list[str], n_tokens: int, repeats: int) -> dict[str, object]:
    """Our backend for vLLM against vLLM alone, and what the latter costs."""
    if importlib.util.find_spec("vllm") is None:
        return {"vllm": None, "vllm_reason": "vllm is not installed"}
    # One process, so that its CPU time is that of the engine, too.
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    import vllm

    config = GenerationConfig(n_tokens, 0)
    with tempfile.TemporaryDirectory() as folder:
        lm.save_pretrained(Path(folder) / "model")
        options = FrozenDict({"enforce_eager": True, "max_num_seqs": 64})
        model = VllmModel(str(Path(folder) / "model"), max_length=1024, engine_options=options)
        parameters = vllm.SamplingParams(temperature=0, max_tokens=n_tokens)

        def bare(texts):
            return model.engine.generate(texts, parameters, use_tqdm=False)

        def ours(texts):
            return model.generate(texts, config)

        outputs = [list(output.outputs[0].token_ids) for output in bare(prompts)]
        assert [list(row[0].ids) for row in ours(prompts)] == outputs
        ((ratio,), seconds) = ratios([bare, ours], [prompts], repeats)
    per_token = 1000 * seconds / (repeats * sum(map(len, outputs)))
    return {"vllm": ratio, "bare_vllm_seconds_per_1000_tokens": round(per_token, 2)}


def main() -> None:
    """Print the ratios as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter texts")
    parser.add_argument("--model", type=Path, help="chat model instead of SmolLM2-135M")
    given = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    n_prompts, n_tokens, batch = (8, 16, 8) if given.quick else (50, 64, 25)
    lm = load(given.model or smollm2(), batch_size=batch)
    # No token ends a text: all sides then do the same work.
    lm.layout.model.config.eos_token_id = lm.layout.model.generation_config.eos_token_id = None
    lm.tokens.tokenizer.eos_token = None
    assert not in_process.end_token_ids(lm)
    prompts = sorted(
        (
            ChatFormat().format_request(lm.tokens, request.format(job))
            for request in REQUESTS
            for job in JOBS
        ),
        key=len,
    )
    prompts = prompts[:: len(prompts) // n_prompts][:n_prompts]
    batches = [prompts[i : i + batch] for i in range(0, n_prompts, batch)]
    result: dict[str, object] = dict(measure_generation(lm, batches, n_tokens, 1))
    result["choose_shared"] = measure_choice(lm, 1 if given.quick else 3, 2)
    result |= measure_vllm(lm, prompts, n_tokens, 1 if given.quick else 2)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
