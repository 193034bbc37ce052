"""Progress of a job: a bar with the time left on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from levelhead.engine.events import Planned, Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from levelhead.engine.events import Event

EVERY = 10.0
"""Seconds between lines where there is no terminal."""


@contextmanager
def progress(what: str) -> Iterator[Callable[[Event], None]]:
    """What to give a run as its `progress`."""
    if not sys.stderr.isatty():
        yield _plainly(what)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f} parts{task.fields[left]}"),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task: TaskID | None = None

        def tell(event: Event) -> None:
            nonlocal task
            if isinstance(event, Planned) and event.stored < event.units:
                if task is not None:
                    bar.remove_task(task)
                task = bar.add_task(what, total=event.units, completed=event.stored, left="")
            elif isinstance(event, Stored) and task is not None:
                bar.update(task, completed=event.done, left=_left(event))

        yield tell


@contextmanager
def steps() -> Iterator[Callable[[str, int, int], None]]:
    """What to call with the name of a step, how much of it is done, and how much there is."""
    if not sys.stderr.isatty():
        last = time.monotonic()

        def now_and_then(what: str, done: int, total: int) -> None:
            nonlocal last
            if time.monotonic() - last >= EVERY:
                last = time.monotonic()
                typer.echo(f"{what}: {done} of {total}", err=True)

        yield now_and_then
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
        before = (0, 0)

        def tell(what: str, done: int, total: int) -> None:
            nonlocal task, before
            if task is None:
                task = bar.add_task(what, total=total)
            elif total != before[1] or done < before[0]:  # something else, with a pace of its own
                bar.reset(task, total=total)
            bar.update(task, description=what, completed=done)
            before = (done, total)

        yield tell


def line(text: str) -> None:
    """A line above the bar, or among lines.

    `typer.echo` would write into the bar: it looks for the stream behind the one that rich puts in
    place of stderr.
    """
    sys.stderr.write(f"{text}\n")


def _plainly(what: str) -> Callable[[Event], None]:
    last = time.monotonic()

    def tell(event: Event) -> None:
        nonlocal last
        now = time.monotonic()
        if isinstance(event, Stored) and now - last >= EVERY:
            last = now
            typer.echo(f"{what}: {event.done} of {event.units} parts{_left(event)}", err=True)

    return tell


def _left(event: Stored) -> str:
    if event.seconds_left is None:
        return ""
    minutes, seconds = divmod(round(event.seconds_left), 60)
    return f", {minutes}:{seconds:02} left" if minutes else f", {seconds} s left"
