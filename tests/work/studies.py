"""A whole study on a tiny model: files that a test can run in seconds."""

import zoo
from rulers import FEMALE, MALE, THINGS, corpus

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
format = "levelhead-study-1"
name = "tiny"
draws = 99
permutations = 99

[models.tiny]
path = "{model}"

[measures]
seat = "seat:lexicon={lexicon},targets=things,corpus={corpus}"
pppl = "pppl:texts={texts}"

[cells.all]
models = ["tiny"]
measures = ["seat"]

[maps.gender]
model = "tiny"
measure = "seat"
exact = "all"
split = "contexts"
sign = "+"
describe = 99
controls = 199
splits = 3
k = 2
greedy = 3

[compare.itself]
maps = ["gender", "again"]

[maps.again]
model = "tiny"
measure = "seat"
exact = "all"
split = "contexts"
sign = "+"
"""


def lexicon(folder):
    """The lexicon of the tiny rulers as a file."""
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
    told = text.replace('pppl = "pppl:texts={texts}"\n', "")
    model = zoo.folder("bert", "BertForPreTraining")
    path.write_text(told.format(model=model, lexicon=lexicon(folder), corpus=corpus()))
    return path


def contents(folder):
    """The bytes of all that a study wrote."""
    files = [folder / "table.csv", *sorted((folder / "results").iterdir())]
    return {path.name: path.read_bytes() for path in files}
