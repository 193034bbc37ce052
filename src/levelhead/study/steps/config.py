"""Common parts of the tables of a study file, and the study without its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple, TypeVar, get_args

from pydantic import BeforeValidator, ConfigDict, Field

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.core.results import Record
from levelhead.core.run_context import Inference
from levelhead.measures.registry import parse_measure
from levelhead.models.serving.addresses import check_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Count = Annotated[int, Field(ge=1)]
ResampleCount = Annotated[int, Field(ge=99)]
Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]


def as_tuple(value: object) -> object:
    """Convert lists of TOML to tuples, because a study is immutable."""
    return tuple(value) if isinstance(value, list) else value


def forbid_repeated_seeds(value: tuple[int, ...]) -> tuple[int, ...]:
    """Raise an error for repeated seeds."""
    if len(set(value)) < len(value):
        raise ValueError("a seed occurs twice: it would count as two models")
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(as_tuple), Field(min_length=1)]
Counts = Annotated[tuple[Count, ...], BeforeValidator(as_tuple), Field(min_length=1)]
Factors = Annotated[tuple[float, ...], BeforeValidator(as_tuple), Field(min_length=1)]


class Reference(NamedTuple):
    """A name of another table that a row of the study uses."""

    kind: str
    """Kind of the named object in messages: "model", "measure"."""
    tables: tuple[str, ...]
    """The tables that may define the name."""
    name: str


def any_model_reference(name: str) -> Reference:
    """Reference to a model that is given or trained by the study."""
    return Reference("model", ("models", "continued_pretraining", "classifiers"), name)


def measure_reference(name: str) -> Reference:
    """Reference to a measure of the study."""
    return Reference("measure", ("measures",), name)


def map_reference(name: str) -> Reference:
    """Reference to a head map of the study."""
    return Reference("map", ("head_maps",), name)


class StrictConfig(Record):
    """Part of a study. Abstract."""

    # Unknown keys are errors: a misspelt option would otherwise run with its default.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def references(self) -> Iterator[Reference]:
        """The names of other tables of the study that this row uses."""
        yield from ()

    def check_in(self, config: StudyConfigBase) -> None:
        """Validate the row within the study, after all names are known to exist."""


class ModelSource(StrictConfig):
    """A model."""

    path: str
    """A Hub id, a folder, a file or a server's address."""
    revision: str | None = None
    dtype: str = "float32"
    batch_size: Count = 32
    device: str | None = None
    """Device of the model: cpu, cuda:0."""
    edit: str | None = None
    """Folder that `save_edits` wrote."""


class TrainedModelStep(StrictConfig):
    """A model that a step trains from another. Abstract."""

    step: ClassVar[str]
    """The first word of the step's name."""
    folder: ClassVar[str]
    """Subfolder of the study with models of this kind."""
    base: str


def inference_keys(inference: Inference) -> dict[str, int]:
    """The keys of a study for seed, resamples and permutations; the level is fixed."""
    if inference.level != Inference().level:
        raise LevelheadError(
            f"a study's intervals have the level {Inference().level:g}, not {inference.level:g}",
            hint="leave out the level",
        )
    return {
        "seed": inference.seed,
        "resamples": inference.resamples,
        "permutations": inference.permutations,
    }


Config = TypeVar("Config", bound=StrictConfig)


class StudyConfigBase(StrictConfig):
    """A study without the tables of its steps, which `STEP_KINDS` adds."""

    format: Literal["levelhead-study-2"]
    name: Key
    description: str = ""
    paper_tables: str | None = None
    """File in the study's folder with the tables that a paper prints."""
    seed: int = 0
    threads: Count = 1
    resamples: ResampleCount = 1999
    permutations: ResampleCount = 9999
    record_items: bool = True
    """Whether measurements contain the texts of their items; false for confidential texts."""
    models: dict[Key, ModelSource]
    measures: dict[Key, str]
    """Measures by name, as on the command line."""

    def rows(self, config: type[Config]) -> Mapping[str, Config]:
        """The rows of the table of one kind of step, by name."""
        for table, row_class in self._tables().items():
            if row_class is config:
                rows: Mapping[str, Config] = getattr(self, table)
                return rows
        raise LevelheadError(f"a study has no {config.__name__}", hint="list it in STEP_KINDS")

    @classmethod
    def _tables(cls) -> dict[str, type[StrictConfig]]:
        """The class of the rows of every table of steps."""
        # The annotation of a table is dict[Key, class of its rows].
        return {
            name: get_args(field.annotation)[1]
            for name, field in cls.model_fields.items()
            if name not in StudyConfigBase.model_fields
        }

    def _all_rows(self) -> Iterator[StrictConfig]:
        for table in self._tables():
            yield from getattr(self, table).values()

    @property
    def trained_models(self) -> dict[str, TrainedModelStep]:
        """The models that the study trains, by name."""
        trained: dict[str, TrainedModelStep] = {}
        for table, config in self._tables().items():
            if issubclass(config, TrainedModelStep):
                trained |= getattr(self, table)
        return trained

    def check(self) -> None:
        """Raise an error for undefined names and unknown measures."""
        for source in self.models.values():
            # Before the study is written anywhere: an address may hold a password.
            if source.path.startswith(("http://", "https://")):
                check_address(source.path.partition("#")[0], None)
        for text in self.measures.values():
            parse_measure(text)
        for row in self._all_rows():
            for reference in row.references():
                known_names = {name for table in reference.tables for name in getattr(self, table)}
                if reference.name not in known_names:
                    raise UnknownNameError(
                        f"{reference.kind} of the study", reference.name, sorted(known_names)
                    )
        tables = [self.models]
        tables += [
            getattr(self, t)
            for t, row_class in self._tables().items()
            if issubclass(row_class, TrainedModelStep)
        ]
        model_names = [name for table in tables for name in table]
        duplicates = sorted(name for name in set(model_names) if model_names.count(name) > 1)
        if duplicates:
            raise LevelheadError(
                f"{duplicates[0]} is the name of two models", hint="give each a different name"
            )
        # Last: rows look up others by name, and these must exist.
        for row in self._all_rows():
            row.check_in(self)
