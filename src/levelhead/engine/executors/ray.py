"""The executor for a cluster: tasks run in actors of Ray Core (the `ray` extra).

An actor computes one task after the other and caches what its process has loaded, so that a model
is loaded once. Only the driver writes results: if an actor or a machine is lost, only its current
tasks are repeated, and a new driver continues from the store. Every machine needs the same versions
of everything that a result depends on; with other versions a task fails.
"""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, final

from levelhead.core.errors import LevelheadError, MissingExtraError
from levelhead.engine.dependencies import DependencyQueue
from levelhead.engine.events import TaskFailed
from levelhead.engine.executors.base import (
    NO_DEPENDENCIES,
    Outcome,
    RunCancelledError,
    TaskResult,
    run_task,
)
from levelhead.engine.executors.ray_cleanup import cleanup_after_kill

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from levelhead.core.run_context import CancelSignal
    from levelhead.engine.dependencies import Dependencies
    from levelhead.engine.tasks import Task

LOCAL = "local"
"""Value of `address` for a cluster on this machine, which ends with the run."""
FORWARDED_VARIABLES = ("LEVELHEAD_ASSETS", "LEVELHEAD_CACHE", "LEVELHEAD_DATA")
"""Variables that actors receive. Not LEVELHEAD_KEY: users of the cluster can see them."""


@final
@dataclass(frozen=True)
class RayActors:
    """Computes tasks in the actors of a cluster."""

    address: str = LOCAL
    """host:port of the head node, "auto" for a cluster that includes this machine, or "local"."""
    workers: int | None = None
    """Number of actors; by default as many as the cluster can place when the run starts."""
    gpus: float = 0
    """GPUs per actor; a fraction shares a GPU."""
    attempts: int = 3
    """Number of actors that may die during one task before the task fails."""

    def __post_init__(self) -> None:
        smallest = min(self.attempts, 1 if self.workers is None else self.workers)
        if smallest < 1 or self.gpus < 0:
            raise LevelheadError(
                f"{self} cannot compute anything",
                hint="give workers and attempts of at least 1, and at least 0 GPUs",
            )

    def run(
        self,
        tasks: Sequence[Task],
        *,
        cancel: CancelSignal,
        dependencies: Dependencies = NO_DEPENDENCIES,
    ) -> Iterator[Outcome]:
        """Submit tasks to free actors and yield outcomes as they arrive.

        Args:
            tasks: tasks to compute.
            cancel: signal that stops the run.
            dependencies: keys of the tasks that each task needs.
        """
        if not tasks:
            return
        with _ray_cluster(self.address) as ray:
            # Ray must reserve as many CPUs as the threads that numpy and torch use.
            cpus = max(task.threads for task in tasks)
            max_actors = self.workers or _count_actor_slots(ray, cpus, self.gpus)
            actor_class = ray.remote(_Actor).options(num_cpus=cpus, num_gpus=self.gpus)
            yield from self._run_on_actors(
                ray, actor_class, max_actors, DependencyQueue(tasks, dependencies), cancel
            )

    def _run_on_actors(
        self,
        ray: Any,
        actor_class: Any,
        max_actors: int,
        queue: DependencyQueue,
        cancel: CancelSignal,
    ) -> Iterator[Outcome]:
        pool = _ActorPool(ray, actor_class, max_actors)
        try:
            while queue or pool.busy:
                if cancel.is_set():
                    raise RunCancelledError
                # Called in every round, because lost actors must be replaced.
                pool.grow(len(queue))
                while pool.idle and (task := queue.take()) is not None:
                    pool.submit(task)
                if pool.idle and queue and not pool.busy:
                    raise queue.deadlock_error()
                for task, outcome in pool.collect(self.attempts):
                    if isinstance(outcome, str):
                        reason = f"the actor was lost ({outcome})"
                        yield from queue.record_death(task, reason, attempts=self.attempts)
                        continue
                    yield outcome
                    yield from queue.record_end(task.key, failed=isinstance(outcome, TaskFailed))
        finally:
            pool.shut_down()


@final
class _ActorPool:
    """The actors of a run. Tasks are submitted only to actors that are placed and ready.

    A cluster may have fewer free resources than the actors need, because others use it or a machine
    was lost. Then some actors wait for resources while the others do the work.
    """

    def __init__(self, ray: Any, actor_class: Any, max_actors: int) -> None:
        self.ray, self.actor_class, self.max_actors = ray, actor_class, max_actors
        self.starting: dict[Any, Any] = {}
        self.idle: list[Any] = []
        self.busy: dict[Any, tuple[Any, Task]] = {}
        self.failed_starts = 0

    def grow(self, n_waiting: int) -> None:
        """Start actors up to the maximum or the number of open tasks."""
        n_needed = min(self.max_actors, n_waiting + len(self.busy))
        while len(self.starting) + len(self.idle) + len(self.busy) < n_needed:
            actor = self.actor_class.remote(os.getcwd())
            # The call waits until Ray has placed the actor, so a full cluster does not block the
            # others.
            self.starting[actor.ready.remote()] = actor

    def submit(self, task: Task) -> None:
        """Submit a task to a free actor."""
        actor = self.idle.pop()
        self.busy[actor.compute.remote(task)] = actor, task

    def collect(self, attempts: int) -> Iterator[tuple[Task, TaskResult | TaskFailed | str]]:
        """Yield outcomes that arrive within 0.2 s; text with the reason if the actor was lost."""
        for reference in self.ray.wait([*self.busy, *self.starting], timeout=0.2)[0]:
            task = None
            if reference in self.starting:
                actor = self.starting.pop(reference)
            else:
                actor, task = self.busy.pop(reference)
            try:
                outcome = self.ray.get(reference)
            # The actor died, or its machine was lost.
            except self.ray.exceptions.RayError as error:
                self.ray.kill(actor)
                if task is not None:
                    yield task, _first_line(error)
                    continue
                # Actors that never become ready point to a broken installation, not to a task.
                self.failed_starts += 1
                if self.failed_starts >= attempts:
                    raise LevelheadError(
                        f"{attempts} actors in a row died before they could start: "
                        f"{_first_line(error)}",
                        hint="install levelhead on every machine of the cluster",
                    ) from None
                continue
            # Only failures in a row count: one started actor shows that the cluster works.
            self.failed_starts = 0
            self.idle.append(actor)
            if task is not None:
                yield task, outcome

    def shut_down(self) -> None:
        """End all actors."""
        busy_actors = [actor for actor, _ in self.busy.values()]
        for actor in [*self.idle, *self.starting.values(), *busy_actors]:
            # Dropping the handle would let an actor first finish its current task.
            self.ray.kill(actor)


class _Actor:
    """Actor process in the cluster that computes tasks."""

    def __init__(self, folder: str) -> None:
        # Relative paths work only on machines with the same folder; elsewhere paths must be
        # absolute or URLs.
        with suppress(OSError):
            os.chdir(folder)

    def ready(self) -> bool:
        """Return True; the call succeeds once the actor is placed."""
        return True

    def compute(self, task: Task) -> TaskResult | TaskFailed:
        """Compute a task; its key is computed again here because it depends on local versions."""
        # `key` is a cached property and arrives with the driver's value; a copy computes it again.
        if replace(task).key != task.key:
            return TaskFailed(
                task.key,
                "a machine of the cluster has other versions than the driver: install the same "
                "levelhead, torch, transformers and numpy everywhere",
            )
        return run_task(task)


@contextmanager
def _ray_cluster(address: str) -> Iterator[Any]:
    """Connect Ray to a cluster and disconnect at the end, unless it was connected before."""
    try:
        # Imported here: only this executor needs Ray, which is an optional extra.
        ray: Any = import_module("ray")
    except ImportError:
        raise MissingExtraError("running on Ray", "ray") from None
    is_connected = ray.is_initialized()
    if is_connected and address != LOCAL and ray.get_runtime_context().gcs_address != address:
        raise LevelheadError(
            f"this process is connected to another Ray cluster than {address}",
            hint="disconnect first with ray.shutdown()",
        )
    with ExitStack() as stack:
        if not is_connected:
            if address == LOCAL:
                stack.enter_context(cleanup_after_kill())
            _connect(ray, address)
            stack.callback(ray.shutdown)
        yield ray


def _connect(ray: Any, address: str) -> None:
    """Connect to a cluster, or start a local one."""
    _check_reachable(address)
    host = "127.0.0.1" if address == LOCAL else address.rpartition(":")[0]
    # By default Ray uses the network address of the machine, where a loopback cluster does not
    # listen.
    address_options = {"_node_ip_address": host} if host.startswith("127.") else {}
    variables = {name: os.environ[name] for name in FORWARDED_VARIABLES if name in os.environ}
    try:
        ray.init(
            address=address,
            # A cluster of others has its own dashboard setting; ours needs no web server.
            include_dashboard=False if address == LOCAL else None,
            log_to_driver=False,
            logging_level="error",
            runtime_env={"env_vars": variables},
            **address_options,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise _unreachable_error(address, error) from None


def _check_reachable(address: str) -> None:
    """Check that the port is open: Ray would wait for minutes and then end the process."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except OSError as error:
            raise _unreachable_error(address, error) from None


def _unreachable_error(address: str, error: Exception) -> LevelheadError:
    return LevelheadError(
        f"no Ray cluster at {address}: {_first_line(error)}",
        hint="start one with `ray start --head`, or give the address of its head node",
    )


def _count_actor_slots(ray: Any, cpus: int, gpus: float) -> int:
    """Count the actors that fit on the machines of a cluster."""
    n_actors = 0
    for node in ray.nodes():
        resources = node["Resources"] if node["Alive"] else {}
        limits = [int(resources.get("CPU", 0) // cpus)]
        limits += [int(resources.get("GPU", 0) / gpus)] if gpus else []
        # An actor needs CPUs and GPUs on the same machine.
        n_actors += min(limits)
    if not n_actors:
        raise LevelheadError(
            f"no machine of the cluster has {cpus} CPUs and {gpus:g} GPUs for an actor",
            hint="request fewer, or give the number of workers if the cluster scales automatically",
        )
    return n_actors


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
