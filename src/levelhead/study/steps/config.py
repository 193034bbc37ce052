"""What the tables of a study file have in common, and the study without its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple, TypeVar, get_args

from pydantic import BeforeValidator, ConfigDict, Field

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.core.results import Record
from levelhead.core.run_context import Inference
from levelhead.measures.registry import parsed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Count = Annotated[int, Field(ge=1)]
Draws = Annotated[int, Field(ge=99)]
Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]


def as_tuple(value: object) -> object:
    """Lists of TOML as tuples: a study is frozen."""
    return tuple(value) if isinstance(value, list) else value


def refuse_repeated(value: tuple[int, ...]) -> tuple[int, ...]:
    """Refuse the same seed twice."""
    if len(set(value)) < len(value):
        raise ValueError("a seed stands here twice: it would count as two models")
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(as_tuple), Field(min_length=1)]
Counts = Annotated[tuple[Count, ...], BeforeValidator(as_tuple), Field(min_length=1)]
Factors = Annotated[tuple[float, ...], BeforeValidator(as_tuple), Field(min_length=1)]


class Reference(NamedTuple):
    """A name that a row takes from other tables of its study."""

    what: str
    """What it names, for people: "model", "measure"."""
    tables: tuple[str, ...]
    """It must be a row of one of these."""
    name: str


def any_model(name: str) -> Reference:
    """A model that is given, or made by the study."""
    return Reference("model", ("models", "children", "tuned"), name)


def measure_named(name: str) -> Reference:
    """A measure of the study."""
    return Reference("measure", ("measures",), name)


def map_named(name: str) -> Reference:
    """A map of heads of the study."""
    return Reference("map", ("maps",), name)


class Strict(Record):
    """Part of a study. Abstract."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def references(self) -> Iterator[Reference]:
        """The names that it takes from elsewhere in the study."""
        yield from ()

    def check_in(self, plan: PlanBase) -> None:
        """Refuse what is wrong with it in this study, once all names are known to be there."""


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


class MadeModel(Strict):
    """A model that a step makes from another. Abstract."""

    step: ClassVar[str]
    """The first word of the step's name."""
    folder: ClassVar[str]
    """Where models of this kind lie, in the folder of the study."""
    of: str


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


Config = TypeVar("Config", bound=Strict)


class PlanBase(Strict):
    """A whole study but the tables of its steps, which `STEP_KINDS` adds."""

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
    measures: dict[Key, str]
    """As the command line names them."""

    def rows(self, config: type[Config]) -> Mapping[str, Config]:
        """The rows of the table of one kind of step, by name."""
        for table, own in self._tables().items():
            if own is config:
                rows: Mapping[str, Config] = getattr(self, table)
                return rows
        raise LevelheadError(f"a study has no {config.__name__}", mend="list it in STEP_KINDS")

    @classmethod
    def _tables(cls) -> dict[str, type[Strict]]:
        """The class of the rows of every table of steps."""
        return {
            name: get_args(field.annotation)[1]
            for name, field in cls.model_fields.items()
            if name not in PlanBase.model_fields
        }

    def _every_row(self) -> Iterator[Strict]:
        for table in self._tables():
            yield from getattr(self, table).values()

    @property
    def made(self) -> dict[str, MadeModel]:
        """The models that the study makes, by name."""
        found: dict[str, MadeModel] = {}
        for table, config in self._tables().items():
            if issubclass(config, MadeModel):
                found |= getattr(self, table)
        return found

    def check(self) -> None:
        """Refuse names that are not in the study, and measures that are none."""
        for text in self.measures.values():
            parsed(text)
        for row in self._every_row():
            for wanted in row.references():
                known = {name for table in wanted.tables for name in getattr(self, table)}
                if wanted.name not in known:
                    raise UnknownName(f"{wanted.what} of the study", wanted.name, sorted(known))
        tables = [self.models]
        tables += [
            getattr(self, t) for t, own in self._tables().items() if issubclass(own, MadeModel)
        ]
        every = [name for table in tables for name in table]
        both = sorted(name for name in set(every) if every.count(name) > 1)
        if both:
            raise LevelheadError(
                f"{both[0]} is the name of two models", mend="give each a name of its own"
            )
        for row in self._every_row():
            row.check_in(self)
