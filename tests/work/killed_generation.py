"""A process that generates texts, and whose runs are killed: `python killed_generation.py ...`.

Arguments: folder of the model, of the store, file of the log, number of requests, number of kills.
The model is loaded once; each run is a fork of this process, so that many kills are cheap.
"""

import json
import os
import random
import signal
import sys
import time
import traceback

import torch

from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import RunContext
from levelhead.engine.events import TaskStored
from levelhead.engine.store import NotStoredError, open_existing_store
from levelhead.measures import query_kinds
from levelhead.measures.generation import text_queries
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.responses import read_responses
from levelhead.models.generation.config import GenerationConfig
from levelhead.models.inputs.chat import ChatFormat
from levelhead.models.loading.load import load

PER_SHARD = 2
WORDS = ("nurse", "doctor", "man", "woman", "river", "house")
STARTS = ("the", "a", "the quick", "the lazy", "here the", "there the tired")
ENDS = ("works", "is", "said that", "was here and", "is tired and")


def query_set(count):
    """Requests of different lengths, each with two samples."""
    config = GenerationConfig(max_tokens=6)
    requests = [f"{start} {word} {end}" for end in ENDS for start in STARTS for word in WORDS]
    items = [
        MeasureItem(request, ((request, 0), (request, 1)), (request,))
        for request in requests[:count]
    ]
    settings = {**config.settings, "chat": ChatFormat("plain").settings, "answer_start": ""}
    return QuerySet("generate", FrozenDict(settings), ("requests",), tuple(items))


def run(lm, folder, log, count, number, pipe):
    """Read all responses; the log names every text that is generated, the pipe what is stored."""
    generate = text_queries.in_process.generate_texts

    def logged(model, prompts, sample_numbers, config):
        for prompt, sample_number in zip(prompts, sample_numbers, strict=True):
            os.write(log, f"{number}\t{prompt}\t{sample_number}\n".encode())
        return generate(model, prompts, sample_numbers, config)

    def report(event):
        if isinstance(event, TaskStored):
            os.write(pipe, b".")

    text_queries.in_process.generate_texts = logged
    read_responses(lm, [query_set(count)], context=RunContext(store=folder, progress=report))


def stored_keys(folder):
    """Keys of the stored tasks; a damaged one raises."""
    try:
        store = open_existing_store(folder)
    except NotStoredError:  # killed before there was a store
        return []
    return [key for key in store if store.has(key)]


def main():
    """Kill so many runs, each after some stored tasks and a moment; let the last one finish."""
    model, folder, log_path, count, kills = sys.argv[1:]
    torch.set_num_threads(1)
    query_kinds.QUERIES_PER_SHARD["generate"] = PER_SHARD
    lm, rng = load(model), random.Random(20261119)
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in range(int(kills) + 1):
        before = stored_keys(folder)
        receive, send = os.pipe()
        child = os.fork()
        if not child:
            try:
                run(lm, folder, log, int(count), number, send)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        os.close(send)
        if number < int(kills):
            for _ in range(rng.randint(0, 4)):
                os.read(receive, 1)
            time.sleep(rng.uniform(0, 0.02))
            os.kill(child, signal.SIGKILL)
        while os.read(receive, 1000):  # a full pipe would stop the last run
            pass
        os.close(receive)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{json.dumps([os.waitstatus_to_exitcode(status), before])}\n")


if __name__ == "__main__":
    main()
