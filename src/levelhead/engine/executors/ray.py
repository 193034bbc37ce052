"""The runner for a cluster: units over actors of Ray Core (the `ray` extra).

An actor computes one unit after the other and keeps what its process has loaded, so that a model is
read once. Results come back to the driver, which alone writes them: an actor or a whole machine
that is lost costs the units it was at, and a driver that is lost goes on from its store. Every
machine needs the same versions of everything a result depends on; units that find others fail.
"""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, final

from levelhead.core.errors import LevelheadError, MissingExtra
from levelhead.engine.dependencies import Waiting
from levelhead.engine.events import Failed
from levelhead.engine.executors.base import NOTHING, Cancelled, Computed, Outcome, outcome_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from levelhead.core.run_context import CancelSignal
    from levelhead.engine.dependencies import After
    from levelhead.engine.tasks import Unit

LOCAL = "local"
"""In the place of an address: a cluster of this machine alone, which ends with the run."""
TOLD = ("LEVELHEAD_ASSETS", "LEVELHEAD_CACHE", "LEVELHEAD_DATA")
"""Variables that actors are given. Not LEVELHEAD_KEY: whoever sees the cluster sees them."""


@final
@dataclass(frozen=True)
class RayActors:
    """Units over the actors of a cluster."""

    address: str = LOCAL
    """The head's host:port, "auto" for a cluster that this machine is part of, or "local"."""
    workers: int | None = None
    """Actors at once; by default as many as the cluster has room for when the run begins."""
    gpus: float = 0
    """GPUs that an actor needs; a part of one can be shared."""
    attempts: int = 3
    """How many actors may die over one unit before it is given up."""

    def __post_init__(self) -> None:
        least = min(self.attempts, 1 if self.workers is None else self.workers)
        if least < 1 or self.gpus < 0:
            raise LevelheadError(
                f"{self} cannot compute anything",
                mend="give workers and attempts of 1 or more, and 0 GPUs or more",
            )

    def run(
        self, units: Sequence[Unit], *, cancel: CancelSignal, after: After = NOTHING
    ) -> Iterator[Outcome]:
        """Hand out units as actors become free; yield outcomes as they arrive."""
        if not units:
            return
        with _connected(self.address) as ray:
            cpus = max(unit.threads for unit in units)
            most = self.workers or _room(ray, cpus, self.gpus)
            kind = ray.remote(_Actor).options(num_cpus=cpus, num_gpus=self.gpus)
            yield from self._handed_out(ray, kind, most, Waiting(units, after), cancel)

    def _handed_out(
        self, ray: Any, kind: Any, most: int, todo: Waiting, cancel: CancelSignal
    ) -> Iterator[Outcome]:
        crew = _Crew(ray, kind, most)
        try:
            while todo or crew.busy:
                if cancel.is_set():
                    raise Cancelled
                crew.grow(len(todo))
                while crew.free and (unit := todo.take()) is not None:
                    crew.give(unit)
                if crew.free and todo and not crew.busy:
                    raise todo.stuck()
                for unit, answer in crew.heard(self.attempts):
                    if isinstance(answer, str):
                        why = f"the actor was lost ({answer})"
                        yield from todo.died(unit, why, attempts=self.attempts)
                        continue
                    yield answer
                    yield from todo.ended(unit.key, failed=isinstance(answer, Failed))
        finally:
            crew.leave()


@final
class _Crew:
    """The actors of a run. Units go to those alone that have been placed and answer.

    A cluster may have less room than there are actors: others use it, a machine was lost. Those
    that wait for a place then wait, and the others do the work.
    """

    def __init__(self, ray: Any, kind: Any, most: int) -> None:
        self.ray, self.kind, self.most = ray, kind, most
        self.starting: dict[Any, Any] = {}
        self.free: list[Any] = []
        self.busy: dict[Any, tuple[Any, Unit]] = {}
        self.stillborn = 0

    def grow(self, waiting: int) -> None:
        """Start as many actors as there may be and is work for."""
        wanted = min(self.most, waiting + len(self.busy))
        while len(self.starting) + len(self.free) + len(self.busy) < wanted:
            actor = self.kind.remote(os.getcwd())
            self.starting[actor.ready.remote()] = actor

    def give(self, unit: Unit) -> None:
        """Let a free actor compute a unit."""
        actor = self.free.pop()
        self.busy[actor.compute.remote(unit)] = actor, unit

    def heard(self, attempts: int) -> Iterator[tuple[Unit, Computed | Failed | str]]:
        """What became of units, within a moment; text if their actor was lost, and how."""
        for answer in self.ray.wait([*self.busy, *self.starting], timeout=0.2)[0]:
            unit = None
            if answer in self.starting:
                actor = self.starting.pop(answer)
            else:
                actor, unit = self.busy.pop(answer)
            try:
                outcome = self.ray.get(answer)
            except self.ray.exceptions.RayError as error:  # the actor, or all of its machine
                self.ray.kill(actor)
                if unit is not None:
                    yield unit, _first_line(error)
                    continue
                self.stillborn += 1
                if self.stillborn >= attempts:
                    raise LevelheadError(
                        f"{attempts} actors in a row died before they could begin: "
                        f"{_first_line(error)}",
                        mend="install levelhead on every machine of the cluster",
                    ) from None
                continue
            self.stillborn = 0
            self.free.append(actor)
            if unit is not None:
                yield unit, outcome

    def leave(self) -> None:
        """End all actors."""
        at_work = [actor for actor, _ in self.busy.values()]
        for actor in [*self.free, *self.starting.values(), *at_work]:
            self.ray.kill(actor)


class _Actor:
    """In the cluster: computes what it is given."""

    def __init__(self, folder: str) -> None:
        with suppress(OSError):  # where there is no such folder, paths must be absolute, or URLs
            os.chdir(folder)

    def ready(self) -> bool:
        """Said when it has a place."""
        return True

    def compute(self, unit: Unit) -> Computed | Failed:
        """A unit's outcome; the key says on which versions it depends, so it is made anew here."""
        if replace(unit).key != unit.key:
            return Failed(
                unit.key,
                "a machine of the cluster has other versions than the driver: install the same "
                "levelhead, torch, transformers and numpy everywhere",
            )
        return outcome_of(unit)


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Ray, joined to a cluster; left again at the end unless somebody had joined before."""
    try:
        ray: Any = import_module("ray")
    except ImportError:
        raise MissingExtra("running on Ray", "ray") from None
    joined = ray.is_initialized()
    if joined and address != LOCAL and ray.get_runtime_context().gcs_address != address:
        raise LevelheadError(
            f"this process has joined another Ray cluster than {address}",
            mend="leave it first: ray.shutdown()",
        )
    if not joined:
        _knock(address)
        loop = "127.0.0.1" if address == LOCAL else address.rpartition(":")[0]
        # Ray takes its own address on the network otherwise, and a loopback cluster is not there.
        own = {"_node_ip_address": loop} if loop.startswith("127.") else {}
        told = {name: os.environ[name] for name in TOLD if name in os.environ}
        try:
            ray.init(
                address=address,
                include_dashboard=False if address == LOCAL else None,
                log_to_driver=False,
                logging_level="error",
                runtime_env={"env_vars": told},
                **own,
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise _nobody(address, error) from None
    try:
        yield ray
    finally:
        if not joined:
            ray.shutdown()


def _knock(address: str) -> None:
    """Whether anybody listens there: Ray itself would wait for minutes, and end the process."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except OSError as error:
            raise _nobody(address, error) from None


def _nobody(address: str, error: Exception) -> LevelheadError:
    return LevelheadError(
        f"no Ray cluster at {address}: {_first_line(error)}",
        mend="start one by `ray start --head`, or give the address of its head",
    )


def _room(ray: Any, cpus: int, gpus: float) -> int:
    """How many actors fit on the machines of a cluster."""
    found = 0
    for node in ray.nodes():
        has = node["Resources"] if node["Alive"] else {}
        rooms = [int(has.get("CPU", 0) // cpus)]
        rooms += [int(has.get("GPU", 0) / gpus)] if gpus else []
        found += min(rooms)
    if not found:
        raise LevelheadError(
            f"no machine of the cluster has {cpus} CPUs and {gpus:g} GPUs for an actor",
            mend="ask for fewer, or, if the cluster grows by itself, say how many workers",
        )
    return found


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
