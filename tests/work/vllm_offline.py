"""vLLM in this process: `python vllm_offline.py FOLDER`, by the Python of an environment with vLLM.

Reads requests as one line of JSON on standard input; the last line of its output is the answer.
"""

import json
import sys

from levelhead.core.frozen import FrozenDict
from levelhead.models.generation.config import GenerationConfig
from levelhead.models.inputs.chat import ChatFormat
from levelhead.models.serving.vllm_model import VllmModel


def answer(folder: str, asked: dict) -> dict:
    model = VllmModel(folder, max_length=1024, engine_options=FrozenDict({"enforce_eager": True}))
    prompts = model.format_requests(asked["requests"], ChatFormat("chat"), asked["answer_start"])

    def generate(config: dict, n: int) -> list:
        settings = GenerationConfig.from_settings(config)
        texts = model.generate(asked["requests"], settings, n=n, chat=ChatFormat("chat"))
        return [[text._asdict() for text in row] for row in texts]

    return {
        "prompts": prompts,
        "choose": model.choose(prompts, asked["options"]).tolist(),
        "fill": model.fill(asked["blanks"], asked["words"], top_k=2).tolist(),
        "log_prob": model.log_prob(asked["texts"]).value.tolist(),
        "greedy": generate(asked["greedy"], 1),
        "sampled": [generate(asked["sampled"], 2) for _ in range(2)],
        "settings": dict(model.settings) | {"engine_options": {}},
        "hash": model.content_hash,
    }


if __name__ == "__main__":
    result = answer(sys.argv[1], json.loads(sys.stdin.readline()))
    sys.stdout.write(f"\n{json.dumps(result)}\n")
