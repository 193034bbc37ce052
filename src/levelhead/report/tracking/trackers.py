"""Experiment trackers: where a run is written, with each tracker's own client."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from levelhead._version import __version__
from levelhead.core.errors import LevelheadError, MissingExtraError, require_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from levelhead.report.tracking.entries import Entries

PROJECT = "levelhead"
"""Experiment or project if the user names none."""
MLFLOW_BATCH = 100
"""Largest number of parameters that MLflow takes in one request; metrics: 1,000."""


class LoggedRun(NamedTuple):
    """A run of a tracker."""

    tracker: str
    run_id: str
    url: str
    """Where the run is shown; empty if only on this disk."""

    def __str__(self) -> str:
        return f"{self.tracker} run {self.run_id}" + (f": {self.url}" if self.url else "")


class Target(NamedTuple):
    """A tracker and where it writes."""

    tracker: str
    place: str

    @classmethod
    def parse(cls, text: str) -> Target:
        """Parse `mlflow`, `mlflow:TRACKING_URI`, `wandb:ENTITY/PROJECT` or `trackio:PROJECT`.

        >>> Target.parse("mlflow:http://127.0.0.1:5000")
        Target(tracker='mlflow', place='http://127.0.0.1:5000')
        """
        tracker, _, place = text.partition(":")
        return cls(require_option("experiment tracker", tracker, tuple(TRACKERS)), place)

    def require_client(self) -> Any:
        """Import the tracker's client; raise with the line that installs it."""
        try:
            return import_module(self.tracker)
        except ImportError:
            raise MissingExtraError(f"logging to {self.tracker}", self.tracker) from None

    def write(self, name: str, entries: Entries) -> LoggedRun:
        """Write a run."""
        client = self.require_client()
        try:
            # Clients print on standard output, where our results are JSON.
            with redirect_stdout(sys.stderr):
                return TRACKERS[self.tracker](client, self.place, name, entries)
        except LevelheadError:
            raise
        # A client may raise anything when its server does not answer or refuses.
        except Exception as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise LevelheadError(
                f"{self.tracker} did not take the run: {reason:.200}",
                hint="the results are complete: check the tracker's address and login, then log "
                "them again with levelhead.log",
            ) from None


def _write_mlflow(mlflow: Any, place: str, name: str, entries: Entries) -> LoggedRun:
    from mlflow.entities import Metric, Param

    # A client of our own: the user's active run and tracking address stay as they are.
    client = mlflow.MlflowClient(tracking_uri=place or None)
    experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
    existing = client.get_experiment_by_name(experiment)
    experiment_id = (
        client.create_experiment(experiment) if existing is None else (existing.experiment_id)
    )
    run = client.create_run(experiment_id, run_name=name, tags=_make_tags(entries))
    run_id, time = run.info.run_id, run.info.start_time
    try:
        parameters = [Param(key, value) for key, value in entries.parameters.items()]
        metrics = [Metric(key, value, time, 0) for key, value in entries.numbers.items()]
        for i in range(0, max(len(parameters), len(metrics)), MLFLOW_BATCH):
            part = slice(i, i + MLFLOW_BATCH)
            client.log_batch(run_id, metrics=metrics[part], params=parameters[part])
        for file_name, text in entries.documents.items():
            client.log_text(run_id, text, f"results/{file_name}")
        for path in entries.files:
            (client.log_artifacts if path.is_dir() else client.log_artifact)(
                run_id, str(path), *([path.name] if path.is_dir() else [])
            )
    except BaseException:
        client.set_terminated(run_id, "FAILED")
        raise
    client.set_terminated(run_id, "FINISHED")
    url = place if place.startswith("http") else ""
    return LoggedRun(
        "mlflow", run_id, url and f"{url.rstrip('/')}/#/experiments/{experiment_id}/runs/{run_id}"
    )


def _write_wandb(wandb: Any, place: str, name: str, entries: Entries) -> LoggedRun:
    entity, _, project = (place or PROJECT).rpartition("/")
    run = wandb.init(
        entity=entity or None,
        project=project,
        name=name,
        config=entries.parameters | _make_tags(entries),
        job_type="levelhead",
        # The user's active run stays as it is.
        reinit="create_new",
        settings=wandb.Settings(silent=True),
    )
    try:
        run.log(entries.numbers)
        artifact = wandb.Artifact(f"results-{run.id}", type="results")
        for file_name, text in entries.documents.items():
            with artifact.new_file(f"results/{file_name}", encoding="utf-8") as file:
                file.write(text)
        for path in entries.files:
            (artifact.add_dir if path.is_dir() else artifact.add_file)(str(path), name=path.name)
        run.log_artifact(artifact)
    except BaseException:
        run.finish(exit_code=1)
        raise
    run.finish()
    return LoggedRun("wandb", str(run.id), str(run.url or ""))


def _write_trackio(trackio: Any, place: str, name: str, entries: Entries) -> LoggedRun:
    run = trackio.init(
        project=place or PROJECT,
        name=name,
        config=entries.parameters | _make_tags(entries),
        # Otherwise the numbers of the computer are logged as if they were results.
        auto_log_gpu=False,
        auto_log_cpu=False,
    )
    try:
        trackio.log(entries.numbers)
        with tempfile.TemporaryDirectory() as scratch:
            artifact_name = re.sub(r"[^\w.-]", "-", f"results-{name}", flags=re.ASCII)
            artifact = trackio.Artifact(artifact_name, type="results")
            for file_name, text in entries.documents.items():
                path = Path(scratch, file_name)
                path.write_text(text, encoding="utf-8")
                artifact.add_file(str(path), name=f"results/{file_name}")
            for path in entries.files:
                add = artifact.add_dir if path.is_dir() else artifact.add_file
                add(str(path), name=path.name)
            run.log_artifact(artifact)
    finally:
        trackio.finish()
    return LoggedRun("trackio", str(run.name), "")


def _make_tags(entries: Entries) -> dict[str, str]:
    return {"levelhead.version": __version__, "levelhead.results_sha256": entries.sha256}


TRACKERS: dict[str, Callable[[Any, str, str, Entries], LoggedRun]] = {
    "mlflow": _write_mlflow,
    "wandb": _write_wandb,
    "trackio": _write_trackio,
}
