"""Options for where a run is computed: this process, local processes, or a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.cli.shared.help_pages import Panel
from levelhead.core.errors import UnknownNameError

if TYPE_CHECKING:
    from levelhead.engine.executors.base import DependencyExecutor

LOCAL, RAY = "local", "ray"
ExecutorName = Annotated[
    str,
    typer.Option(
        "--executor",
        metavar="NAME",
        rich_help_panel=Panel.EXECUTION,
        help="Where to compute: local, or ray (a cluster; needs the ray extra).",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        rich_help_panel=Panel.EXECUTION,
        help="Number of processes, or of actors with ray. The default is one process, or as many "
        "actors as the cluster has room for.",
    ),
]
Address = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS",
        rich_help_panel=Panel.EXECUTION,
        help="Ray cluster: host:port of its head node, `auto`, or `local` for a cluster that ends "
        "with the run.",
    ),
]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        rich_help_panel=Panel.EXECUTION,
        help="Folder or URL that stores responses, which all workers must see; by default they "
        "are stored in the folder of the results.",
    ),
]
Gpus = Annotated[
    float,
    typer.Option(
        metavar="N",
        rich_help_panel=Panel.EXECUTION,
        help="Number of GPUs per Ray actor; a fraction shares one GPU.",
    ),
]


def make_executor(
    name: str, *, workers: int | None, address: str = LOCAL, gpus: float = 0
) -> DependencyExecutor | None:
    """Build the executor that the options name.

    Args:
        name: "local" or "ray".
        workers: number of processes or actors; None is the executor's default.
        address: address of the Ray cluster.
        gpus: GPUs per Ray actor.

    Returns:
        The executor, or None for computation in this process.
    """
    if name == RAY:
        # Imported here: ray is an optional extra, and its import takes seconds.
        from levelhead.engine.executors.ray import RayActors

        return RayActors(address=address, workers=workers, gpus=gpus)
    if name != LOCAL:
        raise UnknownNameError("executor", name, (LOCAL, RAY))
    # One worker gives the same results as this process, without the cost of starting another.
    if workers is None or workers == 1:
        return None
    from levelhead.engine.executors.processes import LocalProcesses

    return LocalProcesses(workers=workers)
