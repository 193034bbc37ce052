"""A study as a TOML file: models, measures, maps of heads, edits, and what is measured of what.

Read strictly: an unknown key or a name that is not in the file is an error before anything is
loaded. In paths `${LEVELHEAD_...}` stands for that environment variable, and for nothing else.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.core.results import Record
from levelhead.core.run_context import Inference
from levelhead.data.tasks import task
from levelhead.locate.headmap import Ablation, By, Part, SplitBy
from levelhead.measure.table import parsed
from levelhead.measure.wording import Form, Separator
from levelhead.mitigate.downstream import Viability
from levelhead.mitigate.settings import Level

VARIABLE = re.compile(r"\$\{(\w+)\}")
Count = Annotated[int, Field(ge=1)]
Draws = Annotated[int, Field(ge=99)]
Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _distinct(value: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(value)) < len(value):
        raise ValueError("a seed stands here twice: it would count as two models")
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(_tuple), Field(min_length=1)]
Counts = Annotated[tuple[Count, ...], BeforeValidator(_tuple), Field(min_length=1)]
Factors = Annotated[tuple[float, ...], BeforeValidator(_tuple), Field(min_length=1)]
Parts = Annotated[tuple[Part, ...], BeforeValidator(_tuple), Field(min_length=1)]


class Strict(Record):
    """Part of a study. Abstract."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Source(Strict):
    """A model."""

    path: str
    """A Hub id, a folder or a file."""
    revision: str | None = None
    dtype: str = "float32"
    batch_size: Count = 32
    device: str | None = None
    """Where it runs: cpu, cuda:0."""
    edit: str | None = None
    """A folder that save_edits wrote."""


class Child(Strict):
    """A model trained further, made by the study."""

    of: str
    how: Literal["cda", "dropout"]
    corpus: Names
    steps: Count = 200
    batch: Count = 32
    seed: int = 0


class Tuned(Strict):
    """A classifier, made by the study from one of its models."""

    of: str
    task: str
    """A row of data.tasks.TASKS."""
    seed: Annotated[int, Field(ge=0)] = 0
    epochs: Annotated[float, Field(gt=0)] | None = None
    """The task's own by default."""
    rate: Annotated[float, Field(gt=0)] = 1e-4
    batch: Count = 32
    dropout: bool = True
    """Whether the base's own acts while it is trained."""


class Located(Strict):
    """A map of heads, and the controls that belong to it."""

    model: str
    measure: str
    by: By = "gradient"
    parts: Parts = ("heads",)
    ablation: Ablation = "zero"
    exact: Count | Literal["all", "none"] | None = None
    split: Literal["auto"] | SplitBy = "auto"
    sign: Literal["found", "+", "-"] = "found"
    describe: Draws | None = None
    """Relabellings that descriptions stand beside."""
    controls: Annotated[int, Field(ge=199)] | None = None
    """Random sets of heads, of the same layers as the top k and all positive ones."""
    control_sizes: Annotated[tuple[Count | Literal["all"], ...], BeforeValidator(_tuple)] = (3,)
    splits: Count | None = None
    """Repeated splits."""
    quick: str | None = None
    """A measure with fewer contexts for controls and repeated splits."""
    k: Count = 3
    greedy: Count | None = None
    """Candidates of greedy selection."""


class Masking(Strict):
    """Table 1 of Yang et al. 2025: top, bottom, all positive and random heads masked."""

    map: str
    prices: Names
    k: Count = 3
    random: Annotated[int, Field(ge=2)] = 5


class Masked(Strict):
    """Table 3: other measures as more and more heads of a map are masked."""

    map: str
    measures: Names
    every: Count = 5


class Amplifying(Strict):
    """Heads with negative scores amplified, beside masking."""

    map: str
    price: str
    ks: Counts = (1, 3, 5)
    factors: Factors = (1.5, 2.0, 3.0)


class Explained(Strict):
    """The counter-stereotype experiment with a map's heads."""

    map: str
    pairs: str | None = None
    """A data set, a file or a folder of `levelhead mine`."""
    frames: str | None = None
    """Instead: a lexicon whose words are put into frames."""
    n: Count = 500
    placebo: str | None = "gender-en"
    """A lexicon whose words of one group may stand for each other; "none": no control."""
    off: Annotated[tuple[str, ...], BeforeValidator(_tuple)] = ("colours", "sports")


class Prompting(Strict):
    """The battery of Counteracts (Zhang 2023) on one model."""

    model: str
    prompts: Literal["winobias40", "table1"] = "winobias40"
    backgrounds: Count | None = None
    form: Form = "auto"
    separator: Separator = "native"
    lexicon: str = "gender-en"
    parts: bool = True
    """Ask the 2 x 2 x 2 counterexamples as well."""


class Compared(Strict):
    """Maps of several models side by side."""

    maps: Names


class Cells(Strict):
    """Measures of models as they are."""

    models: Names
    measures: Names


class Paired(Strict):
    """A model beside another, or an edited one beside its base, item by item."""

    first: str
    second: str
    """Differences are second less first."""
    measures: Names


class Probing(Strict):
    """Whether a model's edit removed a group or hid it; words it was fitted on are left out."""

    model: str
    lexicon: str = "gender-en"
    ruler: str | None = None
    """The measure that the edit is to mitigate."""


class Sweeping(Strict):
    """Projections in all settings (Dawkins et al. 2024): chosen on dev, reported on test."""

    model: str
    measures: Names
    """Of every setting."""
    gain: str
    """The measure by which a setting is chosen."""
    test: str
    """The same on other items, for the report."""
    price: str | None = None
    most: float | None = None
    """By how much the price may rise."""
    pairs: str = "gender-en"
    """A lexicon: its words in neutral frames are what subspaces are fitted on."""
    n: Count | None = None
    """Pairs; all by default."""
    centered: bool = False
    levels: Annotated[tuple[Level, ...], BeforeValidator(_tuple), Field(min_length=1)] | None = None
    """All by default."""
    stability: Draws | None = None
    """Resamples of the pairs."""
    sizes: Counts | None = None
    """Numbers of pairs to fit the chosen setting on."""
    placebos: Annotated[int, Field(ge=200)] | None = None
    """Of the best setting of every level."""

    @model_validator(mode="after")
    def _reports_on_other_items(self) -> Self:
        if self.gain == self.test:
            raise ValueError(f"{self.gain} chooses and reports: test is a measure of other items")
        return self


class Outside(Strict):
    """The settings of a sweep again, in classifiers (Dawkins et al. 2024, Tables 5, 6 and 7)."""

    sweep: str
    """Of the pretrained model."""
    inside: Names
    """Measures of it."""
    models: Names
    """Classifiers that are averaged: one task, several seeds."""
    outside: Names
    """Measures of them, the price among them."""
    price: str
    keep: Annotated[float, Field(ge=0)] = 0.05
    """What a viable setting may lose of the price: in its unit, or as a share of the base's."""
    viability: Viability = "relative"
    subspaces: Literal["refitted", "reused"] = "refitted"
    """Fitted on each classifier, or those of the pretrained model."""


class Masks(Strict):
    """Tasks with heads masked (Yang et al. 2025, Table 2)."""

    map: str
    tasks: Names
    seeds: Annotated[
        tuple[int, ...], BeforeValidator(_tuple), Field(min_length=1), AfterValidator(_distinct)
    ] = (0,)
    mask: Literal["before", "after"] = "after"
    """Masked while the classifier is trained, or in the trained one."""
    k: Count = 3
    random: Annotated[int, Field(ge=0)] = 0
    """So many sets of random heads of the same layers stand beside every set; masked after training
    only, since before it each would be a training of its own."""
    epochs: Annotated[float, Field(gt=0)] | None = None
    rate: Annotated[float, Field(gt=0)] = 1e-4
    batch: Count = 32
    dropout: bool = True
    """Whether the base's own acts while it is trained."""

    @model_validator(mode="after")
    def _random_after(self) -> Self:
        if self.random and self.mask == "before":
            raise ValueError("random sets of heads are masked after training: say mask = 'after'")
        return self


def inference_keys(inference: Inference) -> dict[str, int]:
    """The keys of a study that say how its numbers are inferred; it has none for the level."""
    if inference.level != Inference().level:
        raise LevelheadError(
            f"a study's intervals have the level {Inference().level:g}, not {inference.level:g}",
            mend="leave out the level",
        )
    return {
        "seed": inference.seed,
        "draws": inference.resamples,
        "permutations": inference.permutations,
    }


class Plan(Strict):
    """A whole study."""

    format: Literal["levelhead-study-1"]
    name: Key
    about: str = ""
    printed: str | None = None
    """A file beside the study with the tables that a paper prints."""
    seed: int = 0
    threads: Count = 1
    draws: Draws = 1999
    permutations: Draws = 9999
    models: dict[Key, Source]
    children: dict[Key, Child] = Field(default_factory=dict)
    tuned: dict[Key, Tuned] = Field(default_factory=dict)
    measures: dict[Key, str]
    """As the command line names them."""
    cells: dict[Key, Cells] = Field(default_factory=dict)
    against: dict[Key, Paired] = Field(default_factory=dict)
    removed: dict[Key, Probing] = Field(default_factory=dict)
    maps: dict[Key, Located] = Field(default_factory=dict)
    masking: dict[Key, Masking] = Field(default_factory=dict)
    lines: dict[Key, Masked] = Field(default_factory=dict)
    amplify: dict[Key, Amplifying] = Field(default_factory=dict)
    explain: dict[Key, Explained] = Field(default_factory=dict)
    knowledge: dict[Key, Prompting] = Field(default_factory=dict)
    compare: dict[Key, Compared] = Field(default_factory=dict)
    sweeps: dict[Key, Sweeping] = Field(default_factory=dict)
    downstream: dict[Key, Outside] = Field(default_factory=dict)
    glue: dict[Key, Masks] = Field(default_factory=dict)

    def check(self) -> None:
        """Refuse names that are not in the study, and measures that are none."""
        for text in self.measures.values():
            parsed(text)
        for name in [one.task for one in self.tuned.values()]:
            task(name)
        for name in [name for masks in self.glue.values() for name in masks.tasks]:
            task(name)
        trained = {*self.models, *self.children}
        models = {*trained, *self.tuned}
        for kind, known, named in (
            ("model", set(self.models), [one.of for one in self.children.values()]),
            ("model", trained, [one.of for one in self.tuned.values()]),
            ("sweep", set(self.sweeps), [one.sweep for one in self.downstream.values()]),
            ("model", models, [name for one in self.cells.values() for name in one.models]),
            ("model", models, [one.first for one in self.against.values()]),
            ("model", models, [one.second for one in self.against.values()]),
            ("model", set(self.models), [one.model for one in self.removed.values()]),
            ("model", models, [one.model for one in self.maps.values()]),
            ("model", models, [one.model for one in self.sweeps.values()]),
            ("model", models, [one.model for one in self.knowledge.values()]),
            (
                "classifier",
                set(self.tuned),
                [name for one in self.downstream.values() for name in one.models],
            ),
            ("measure", set(self.measures), self._measures()),
            ("map", set(self.maps), self._maps()),
        ):
            for name in named:
                if name not in known:
                    raise UnknownName(f"{kind} of the study", name, sorted(known))
        every = [*self.models, *self.children, *self.tuned]
        both = sorted(name for name in set(every) if every.count(name) > 1)
        if both:
            raise LevelheadError(
                f"{both[0]} is the name of two models", mend="give each a name of its own"
            )
        for row in self.downstream.values():
            if row.price not in row.outside:
                raise UnknownName("price among the measures outside", row.price, row.outside)
            self._check_classifiers(row)

    def _check_classifiers(self, row: Outside) -> None:
        """Refuse classifiers of another model or task, the same one twice, and columns likewise."""
        if twice := sorted({*row.inside} & {*row.outside}):
            raise LevelheadError(
                f"{twice[0]} is a measure inside and outside",
                mend="give one of them a name of its own",
            )
        made = [self.tuned[name] for name in row.models]
        if {one.of for one in made} != {self.sweeps[row.sweep].model}:
            raise LevelheadError(
                "classifiers of another model than the sweep's", mend="compare a model with its own"
            )
        if len({one.task for one in made}) > 1 or len({one.seed for one in made}) < len(made):
            raise LevelheadError(
                "classifiers that are averaged differ in more than their seed, or not in it",
                mend="give one task and a seed to each",
            )

    def _measures(self) -> list[str]:
        named = [name for one in self.cells.values() for name in one.measures]
        named += [name for one in self.against.values() for name in one.measures]
        named += [one.ruler for one in self.removed.values() if one.ruler is not None]
        named += [name for one in self.masking.values() for name in one.prices]
        named += [name for one in self.lines.values() for name in one.measures]
        named += [one.price for one in self.amplify.values()]
        named += [one.measure for one in self.maps.values()]
        for sweep in self.sweeps.values():
            named += [*sweep.measures, sweep.gain, sweep.test]
            named += [sweep.price] if sweep.price is not None else []
        for row in self.downstream.values():
            named += [*row.inside, *row.outside]
        return named + [one.quick for one in self.maps.values() if one.quick is not None]

    def _maps(self) -> list[str]:
        rows = (self.masking, self.lines, self.amplify, self.explain, self.glue)
        named = [one.map for part in rows for one in part.values()]
        return named + [name for one in self.compare.values() for name in one.maps]


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """The study that a TOML file writes down, or JSON as an audit keeps it, checked."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        told = json.loads(text) if str(path).endswith(".json") else tomllib.loads(_expanded(text))
    except (OSError, UnicodeError) as error:
        raise LevelheadError(f"cannot read {path}: {error}", mend="check the path") from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        kind = "JSON" if isinstance(error, json.JSONDecodeError) else "TOML"
        raise LevelheadError(f"{path} is no {kind}: {error}", mend="mend that line") from None
    try:
        plan = Plan.model_validate(told)
    except ValidationError as error:
        raise _refused(str(path), error) from None
    plan.check()
    return plan


def _expanded(text: str) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1]
        if not name.startswith("LEVELHEAD_"):
            raise LevelheadError(
                f"${{{name}}} in a study", mend="only variables named LEVELHEAD_... are read"
            )
        if name not in os.environ:
            raise LevelheadError(f"{name} is not set", mend=f"export {name}=<folder>")
        return os.environ[name].replace("\\", "\\\\").replace('"', '\\"')

    return VARIABLE.sub(value, text)


def _refused(path: str, error: ValidationError) -> LevelheadError:
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    if first["type"] != "extra_forbidden":
        return LevelheadError(f"{path}: {where}: {first['msg']}", mend="mend that value")
    place: object = Plan
    known = sorted(Plan.model_fields)
    for step in first["loc"][:-1]:
        fields = getattr(place, "model_fields", {})
        if step in fields:
            inner = fields[step].annotation
            place = inner.__args__[1] if getattr(inner, "__origin__", None) is dict else inner
            known = sorted(getattr(place, "model_fields", {}))
    close = get_close_matches(str(first["loc"][-1]), known, n=1)
    mend = f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}"
    return LevelheadError(f"{path}: no such key: {where}", mend=mend)
