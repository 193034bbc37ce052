"""`levelhead.log`: write results to an experiment tracker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from levelhead.core.results import Record
from levelhead.report.tracking.entries import make_entries
from levelhead.report.tracking.trackers import Target

if TYPE_CHECKING:
    import os

    from levelhead.report.tracking.entries import Results
    from levelhead.report.tracking.trackers import LoggedRun


def log(
    results: Results,
    to: str,
    *,
    name: str | None = None,
    files: tuple[str | os.PathLike[str], ...] = (),
) -> LoggedRun:
    """Log results to MLflow, Weights & Biases or Trackio, as one run.

    Parameters are the provenance. Metrics are all numbers, each with the ends of its interval, its
    p-value and its number of items. Files are the results in JSON, and the report of a folder.

    Args:
        results: A result, results by name, or the folder of an audit or a study.
        to: `mlflow`, `wandb` or `trackio`; behind a colon MLflow's tracking address, or the project
            of the others.
        name: Name of the run; by default that of the folder or of the measure.
        files: More files or folders to attach, such as that of an edit.
    """
    target = Target.parse(to)
    # Before the results are read: a missing package is named at once.
    target.require_client()
    entries = make_entries(results, files)
    if name is None:
        if isinstance(results, str | Path):
            name = Path(results).resolve().name
        else:
            first = results if isinstance(results, Record) else next(iter(results.values()))
            name = str(getattr(first, "measure", type(first).__name__))
    return target.write(name, entries)
