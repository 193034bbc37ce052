"""Queries in this process and in actors of Ray: `python read_in_actors.py ENGINE FOLDER SCRATCH`.

ENGINE is "transformers" or "vLLM". Reads requests as one line of JSON on standard input; the last
line of its output is the answer.
"""

import json
import sys
from pathlib import Path

from levelhead.core.frozen import FrozenDict
from levelhead.core.run_context import RunContext
from levelhead.engine.executors.ray import RayActors
from levelhead.measures import query_kinds
from levelhead.measures.items import MeasureItem, QuerySet
from levelhead.measures.responses import read_responses
from levelhead.models.inputs.chat import ChatFormat

PER_SHARD = 2


def open_engine(engine, folder):
    if engine == "vLLM":
        from levelhead.models.serving.vllm_model import VllmModel

        return VllmModel(
            folder, max_length=1024, engine_options=FrozenDict({"enforce_eager": True})
        )
    from levelhead.models.loading.load import load

    return load(folder)


def query_sets(asked):
    """Options of all requests, greedy texts, and two sampled texts of each."""
    chat = {"chat": ChatFormat("chat").settings}

    def make_set(kind, settings, queries):
        items = (MeasureItem(query[0][0], query, (query[0][0],)) for query in queries)
        return QuerySet(kind, FrozenDict(chat | settings), ("requests",), tuple(items))

    requests = asked["requests"]
    options = [option.strip() for option in asked["options"]]
    return [
        make_set(
            "choose",
            {"answer_start": asked["answer_start"]},
            [((request, tuple(options)),) for request in requests],
        ),
        make_set("generate", asked["greedy"], [((request, 0),) for request in requests]),
        make_set("generate", asked["sampled"], [((name, 0), (name, 1)) for name in requests]),
    ]


def stored_files(folder):
    return {path.name: path.read_bytes() for path in (folder / "units").rglob("*")
            if path.is_file()}  # fmt: skip


def main():
    engine, folder, scratch = sys.argv[1:]
    lm, sets = open_engine(engine, folder), query_sets(json.loads(sys.stdin.readline()))
    query_kinds.QUERIES_PER_SHARD |= {"choose": PER_SHARD, "generate": PER_SHARD}
    query_kinds.QUERIES_PER_SERVED_SHARD = PER_SHARD
    # vLLM takes gigabytes of memory: one actor.
    actors = RayActors(workers=1 if engine == "vLLM" else 2)
    answer, files = {}, []
    for place, executor in (("actors", actors), ("here", None)):
        store = Path(scratch, place)
        context = RunContext(store=str(store), executor=executor)
        chosen, greedy, sampled = read_responses(lm, sets, context=context)
        answer[place] = {
            "choose": chosen.values[:, 0, : chosen.values.shape[-1] // 2].tolist(),
            "greedy": [text for (text,) in greedy.texts],
            "sampled": sampled.texts,
        }
        files.append(stored_files(store))
    answer["n_files"] = len(files[0])
    answer["has_same_bytes"] = files[0] == files[1]
    sys.stdout.write(f"\n{json.dumps(answer)}\n")


if __name__ == "__main__":
    main()
