"""A process that generates texts, and whose runs are killed: `python killed_generation.py ...`.

Arguments: folder of the model, of the store, file of the log, number of requests, number of kills,
and who generates: "here", "processes", "vllm", or the address of a Ray cluster or of a server. The
model is loaded once; each run is a fork of this process, so that many kills are cheap.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, replace

import torch

from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import RunContext
from levelhead.engine.events import TaskStored
from levelhead.engine.executors.base import InProcess
from levelhead.engine.executors.processes import LocalProcesses
from levelhead.engine.executors.ray import RayActors
from levelhead.engine.store import NotStoredError, open_existing_store
from levelhead.engine.tasks import Task
from levelhead.measures import query_kinds, responses
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.models.generation.config import GenerationConfig
from levelhead.models.inputs.chat import ChatFormat
from levelhead.models.loading.http_model import HttpModel
from levelhead.models.loading.load import load
from levelhead.models.serving.vllm_model import VllmModel

PER_SHARD = 2
ACTORS = 2
HERE, PROCESSES, VLLM = "here", "processes", "vllm"
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


def write_log(path, number, queries):
    """A line for every text that is generated; one write is whole, whoever else appends."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, "".join(f"{number}\t{text}\t{i}\n" for text, i in queries).encode())
    os.close(log)


def answer_and_log(spec):
    """The task of a worker, which leaves lines in the log of its run."""
    write_log(spec["log"], spec["run"], spec["task"]["task"]["asks"])
    return responses.answer_shard_in_worker(spec["task"])


@dataclass(frozen=True)
class Logged:
    """An executor whose workers leave lines in a log."""

    executor: object
    log: str
    number: int

    def run(self, tasks, *, cancel):
        there = [
            Task(
                "killed_generation:answer_and_log",
                FrozenDict({"task": task.spec, "log": self.log, "run": self.number}),
            )
            for task in tasks
        ]
        keys = {task.key: here.key for task, here in zip(there, tasks, strict=True)}
        for outcome in self.executor.run(there, cancel=cancel):
            yield replace(outcome, key=keys[outcome.key])


def is_server(who):
    """Whether an argument is the address of a server."""
    return who.startswith("http://")


def find_model(folder, who):
    """The model that every run reads; that in vLLM is loaded before the first fork."""
    if is_server(who):
        return HttpModel(who)
    if who != VLLM:
        return load(folder)
    model = VllmModel(folder, max_length=1024, engine_options=FrozenDict({"enforce_eager": True}))
    _ = model.engine
    return model


def find_executor(who, number):
    """The executor of a run by the argument; None if the model of this process generates."""
    if who == PROCESSES:
        return LocalProcesses(1)
    if who == VLLM or is_server(who):
        # One process queries a server, which has no model that a worker could load.
        return None
    if who == HERE:
        # Every other run loads the model again, as a worker does: all runs share one store.
        return InProcess() if number % 2 else None
    return RayActors(who, workers=ACTORS)


def run(lm, folder, log, count, number, pipe, executor):
    """Read all responses; the log names every text that is generated, the pipe what is stored."""
    answer = responses.answer_shard

    def logged(spec):
        write_log(log, number, spec["asks"])
        return answer(spec)

    def report(event):
        if isinstance(event, TaskStored):
            os.write(pipe, b".")

    if executor is None:
        responses.answer_shard = logged
    else:
        executor = Logged(executor, log, number)
    context = RunContext(store=folder, progress=report, executor=executor)
    responses.read_responses(lm, [query_set(count)], context=context)


def stored_keys(folder):
    """Keys of the stored tasks; a damaged one raises."""
    try:
        store = open_existing_store(folder)
    except NotStoredError:  # killed before there was a store
        return []
    return [key for key in store if store.has(key)]


def list_tasks(lm, asked, threads):
    """Key of the task of every query."""
    plan = responses.plan_tasks(lm, asked, threads)
    return {
        query: plan.tasks[plan.locations[key][0]].key
        for item, keys in zip(asked.items, plan.query_hashes, strict=True)
        for query, key in zip(item.queries, keys, strict=True)
    }


def check_log(runs, log, task_of):
    """Check the log of killed runs, and count.

    Returns the number of generated texts, of those that were stored before their run, of those that
    a run generated twice, and of tasks that were computed.
    """
    lines = [line.split("\t") for line in log.read_text().splitlines()]
    generated = [(int(run), (prompt, int(number))) for run, prompt, number in lines]
    assert {query for _, query in generated} == set(task_of)
    n_stored = sum(task_of[query] in runs[run][1] for run, query in generated)
    n_tasks = len({(run, task_of[query]) for run, query in generated})
    return len(generated), n_stored, len(generated) - len(set(generated)), n_tasks


def kill_runs(command, arguments, env):
    """Runs of a process of this file that were killed, and the task of every query.

    Returns, for each run, its exit code and the keys of what was stored before it.
    """
    process = subprocess.run(
        [*map(str, command), __file__, *map(str, arguments)],
        env=env | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    lines = process.stdout.splitlines()
    # Engines write to standard output, too.
    runs = [json.loads(line) for line in lines if line.startswith(("[-9,", "[0,", "[1,"))]
    tasks = {(prompt, number): key for prompt, number, key in json.loads(lines[-1])}
    assert {code for code, _ in runs[:-1]} <= {-9}, process.stderr[-2000:]
    assert runs[-1][0] == 0, process.stderr[-2000:]
    return runs, tasks


def main():
    """Kill so many runs, each after some stored tasks and a moment; let the last one finish."""
    model, folder, log, count, kills, who = sys.argv[1:]
    torch.set_num_threads(1)
    query_kinds.QUERIES_PER_SHARD["generate"] = PER_SHARD
    query_kinds.QUERIES_PER_SERVED_SHARD = PER_SHARD
    lm, rng = find_model(model, who), random.Random(20261119)
    for number in range(int(kills) + 1):
        before = stored_keys(folder)
        receive, send = os.pipe()
        child = os.fork()
        if not child:
            try:
                run(lm, folder, log, int(count), number, send, find_executor(who, number))
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
        sys.stdout.flush()
    tasks = list_tasks(lm, query_set(int(count)), RunContext().threads)
    sys.stdout.write(f"{json.dumps([[*query, key] for query, key in tasks.items()])}\n")


if __name__ == "__main__":
    main()
