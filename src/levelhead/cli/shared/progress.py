"""Progress of a job: a bar with the time left on a terminal, a line at intervals elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from levelhead.engine.events import TasksPlanned, TaskStored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from levelhead.engine.events import Event

SECONDS_BETWEEN_LINES = 10.0
"""Seconds between lines without a terminal: often enough to see progress, few enough for a log."""


@contextmanager
def show_progress(label: str, *, quiet: bool = False) -> Iterator[Callable[[Event], None]]:
    """Show a run's progress; yield the callback for its `progress`.

    Args:
        label: name of the parts that are counted.
        quiet: whether to show nothing.
    """
    if quiet:
        yield lambda event: None
        return
    # In a file, the control codes of a bar would fill the log.
    if not sys.stderr.isatty():
        yield _report_lines(label)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn

    # On stderr: stdout carries the result, which a user may pipe into a file.
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f} parts{task.fields[left]}"),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task: TaskID | None = None

        def on_event(event: Event) -> None:
            nonlocal task
            # A job whose parts are all stored is done at once: a bar would only flash.
            if isinstance(event, TasksPlanned) and event.n_stored < event.n_tasks:
                if task is not None:
                    bar.remove_task(task)
                task = bar.add_task(label, total=event.n_tasks, completed=event.n_stored, left="")
            elif isinstance(event, TaskStored) and task is not None:
                bar.update(task, completed=event.n_done, left=_time_left(event))

        yield on_event


@contextmanager
def show_steps(*, quiet: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """Show the progress of steps; yield a callback of a step's name, parts done and all parts.

    Args:
        quiet: whether to show nothing.
    """
    if quiet:
        yield lambda label, done, total: None
        return
    if not sys.stderr.isatty():
        last_time = time.monotonic()

        def print_step(label: str, done: int, total: int) -> None:
            nonlocal last_time
            if time.monotonic() - last_time >= SECONDS_BETWEEN_LINES:
                last_time = time.monotonic()
                typer.echo(f"{label}: {done} of {total}", err=True)

        yield print_step
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task: TaskID | None = None
        previous = (0, 0)

        def update_bar(label: str, done: int, total: int) -> None:
            nonlocal task, previous
            if task is None:
                task = bar.add_task(label, total=total)
            # Another step has another speed: without a reset its time left would be wrong.
            elif total != previous[1] or done < previous[0]:
                bar.reset(task, total=total)
            bar.update(task, description=label, completed=done)
            previous = (done, total)

        yield update_bar


def print_line(text: str) -> None:
    """Print a line to stderr, above the progress bar if there is one.

    Args:
        text: the line.
    """
    # typer.echo would write into the bar: it finds the stream that rich replaced by its own.
    sys.stderr.write(f"{text}\n")


def _report_lines(label: str) -> Callable[[Event], None]:
    last_time = time.monotonic()

    def on_event(event: Event) -> None:
        nonlocal last_time
        now = time.monotonic()
        if isinstance(event, TaskStored) and now - last_time >= SECONDS_BETWEEN_LINES:
            last_time = now
            typer.echo(
                f"{label}: {event.n_done} of {event.n_tasks} parts{_time_left(event)}", err=True
            )

    return on_event


def _time_left(event: TaskStored) -> str:
    if event.seconds_left is None:
        return ""
    minutes, seconds = divmod(round(event.seconds_left), 60)
    return f", {minutes}:{seconds:02} left" if minutes else f", {seconds} s left"
