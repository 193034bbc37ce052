"""A complete study on a tiny model: files that a test can run in seconds."""

import json
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import zoo
from filelock import FileLock
from metric_cases import FEMALE, MALE, THINGS, corpus, sentences

from levelhead.models.edits.base import HeadScale
from levelhead.models.edits.files import save_edits
from levelhead.models.sites import Site
from levelhead.study import results_dir as written
from levelhead.study.config import read_study_config
from levelhead.study.run import run_study

LEXICON = """
name = "tiny"
language = "en"
groups = ["female", "male"]
source = "the tests"
licence = "CC0-1.0"
limits = "says nothing of anybody"

[[terms]]
kind = "person"
rows = [{terms}]

[targets.things]
about = "words of the tiny models"
[targets.things.sides.a]
leans = "female"
words = {first}
[targets.things.sides.b]
leans = "male"
words = {second}
"""

STUDY = """
format = "levelhead-study-2"
name = "tiny"
resamples = 99
permutations = 99

[models.tiny]
path = "{model}"

[measures]
seat = "seat:lexicon={lexicon},targets=things,corpus={corpus}"
pppl = "pppl:texts={texts}"

[measurements.all]
models = ["tiny"]
measures = ["seat"]

[head_maps.gender]
model = "tiny"
measure = "seat"
ablate_top = "all"
split = "contexts"
bias_direction = "+"
description_permutations = 99
controls = 199
splits = 3
k = 2
greedy_candidates = 3

[map_comparisons.itself]
maps = ["gender", "again"]

[head_maps.again]
model = "tiny"
measure = "seat"
ablate_top = "all"
split = "contexts"
bias_direction = "+"
"""

FEW = STUDY[: STUDY.index("[head_maps.gender]")] + STUDY[STUDY.index("[head_maps.again]") :]
"""A cell and a map: readings of a measure, and of a model without each of its heads."""

EVERY = (
    STUDY
    + """
[models.edited]
path = "{model}"
edit = "{edit}"

[continued_pretraining.swapped]
base = "tiny"
method = "cda"
corpus = ["{corpus}"]
steps = 2
batch_size = 4

[measurements.both]
models = ["edited", "swapped"]
measures = ["seat", "pppl"]

[comparisons.base]
first = "tiny"
second = "edited"
measures = ["seat"]

[probing.edit]
model = "edited"
lexicon = "{lexicon}"

[masking.heads]
map = "gender"
utility_measures = ["pppl"]
k = 2
random = 2

[mitigations.heads]
model = "tiny"
map = "gender"
k = 1
measures = ["seat"]
utility_measures = ["pppl"]

[masking_curves.heads]
map = "gender"
measures = ["seat"]
step_size = 6

[amplify.heads]
map = "gender"
utility_measure = "pppl"
ks = [1]
factors = [2.0]

[counterstereotypes.heads]
map = "gender"
frames = "{lexicon}"
n = 8
placebo = "none"
control_categories = []
"""
)
"""Every kind of step that needs no data but the tiny words. Sweeps and classifiers have tests of
their own (test_projecting, test_outside), with measures in these words."""


def lexicon(folder):
    """The lexicon of the tiny measures as a file."""
    terms = ", ".join(
        f'{{ female = "{a}", male = "{b}" }}' for a, b in zip(FEMALE, MALE, strict=True)
    )
    path = folder / "tiny.toml"
    first, second = list(THINGS[:5]), list(THINGS[5:])
    path.write_text(LEXICON.format(terms=terms, first=first, second=second))
    return path


def study(folder, text=STUDY):
    """A study's file."""
    path = folder / "study.toml"
    output = text.replace('pppl = "pppl:texts={texts}"\n', "")
    model = zoo.folder("bert", "BertForPreTraining")
    path.write_text(output.format(model=model, lexicon=lexicon(folder), corpus=corpus()))
    return path


class Finished(NamedTuple):
    """A study that was run: its file, its folder, its results, and the events of its steps."""

    plan: Path
    folder: Path
    results: dict
    events: list

    def copied(self, place):
        """The folder, for a test that writes to it."""
        return Path(shutil.copytree(self.folder, place))


def finished(tmp_path_factory):
    """A study of every step, run once: by one worker, if several share the tests of a run.

    Nothing is kept from one run of the tests to the next, so that no result of older code is read.
    """
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent
    place /= "every"
    output = place / "events.json"
    with FileLock(f"{place}.lock"):
        if not output.exists():
            shutil.rmtree(place, ignore_errors=True)  # of a worker that was stopped
            place.mkdir()
            output.write_text(json.dumps(_run_every(place)))
    results = written.load_results(place / "out")
    steps = [tuple(load) for load in json.loads(output.read_text())]
    return Finished(place / "study.toml", place / "out", results, steps)


def _run_every(place):
    """Run the study from files that stay where they are; the events of the steps."""
    model = shutil.copytree(zoo.folder("bert", "BertForPreTraining"), place / "model")
    contexts = shutil.copy(corpus(), place / "corpus.txt")
    (place / "texts.txt").write_text("\n".join(sentences()))
    save_edits([HeadScale([Site("head_out", 1, 1)], 0)], place / "edit", fitted_words=["river"])
    values = {"model": model, "corpus": contexts, "texts": place / "texts.txt"}
    (place / "study.toml").write_text(
        EVERY.format(lexicon=lexicon(place), edit=place / "edit", **values)
    )
    output = []
    results = run_study(
        read_study_config(place / "study.toml"),
        place / "out",
        on_step=lambda *step: output.append(step),
    )
    assert written.load_results(place / "out") == results
    return output


def contents(folder):
    """The bytes of all that a study wrote."""
    files = [folder / "table.csv", *sorted((folder / "results").iterdir())]
    return {path.name: path.read_bytes() for path in files}
