"""Who computes: this process, local processes, or a Ray cluster; options and what they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.core.errors import UnknownName

if TYPE_CHECKING:
    from levelhead.engine.executors.base import OrderedRunner

LOCAL, RAY = "local", "ray"
Runner = Annotated[str, typer.Option("--runner", help="local, or ray: a cluster (the ray extra).")]
Workers = Annotated[
    int | None,
    typer.Option(
        help="Processes, or actors on ray. By default locally one, on ray all there is room for."
    ),
]
Address = Annotated[
    str,
    typer.Option(help="With ray: host:port of the head, auto, or local for one of this run."),
]
Store = Annotated[
    str | None,
    typer.Option(help="Keep readings here, not in the folder: a URL that all workers see."),
]
Gpus = Annotated[float, typer.Option(help="With ray: GPUs for an actor, or a part of one.")]


def chosen(
    runner: str, *, workers: int | None, address: str = LOCAL, gpus: float = 0
) -> OrderedRunner | None:
    """The runner that the options name; None is this process."""
    if runner == RAY:
        from levelhead.engine.executors.ray import RayActors

        return RayActors(address=address, workers=workers, gpus=gpus)
    if runner != LOCAL:
        raise UnknownName("runner", runner, (LOCAL, RAY))
    if workers is None or workers == 1:
        return None
    from levelhead.engine.executors.processes import LocalProcesses

    return LocalProcesses(workers=workers)
