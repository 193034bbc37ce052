"""Units that wait to be computed: some until others have ended."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, final

from levelhead.core.errors import LevelheadError
from levelhead.engine.events import Failed, Retried

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from levelhead.engine.tasks import Unit

    After = Mapping[str, Collection[str]]
    """By the key of a unit, the keys of those that it needs; what is not among the units is met."""


@final
class Waiting:
    """What a runner hands out next."""

    def __init__(self, units: Sequence[Unit], after: After) -> None:
        self._todo = deque(units)
        here = {unit.key for unit in units}
        self._open = {key: here.intersection(after.get(key, ())) for key in here}
        self._deaths: Counter[str] = Counter()
        self._needing: dict[str, list[str]] = {}
        for key, needs in self._open.items():
            for need in needs:
                self._needing.setdefault(need, []).append(key)

    def __len__(self) -> int:
        """How many units wait."""
        return len(self._todo)

    def take(self) -> Unit | None:
        """The first unit that needs nothing more; None if all wait for units under way."""
        for place, unit in enumerate(self._todo):
            if not self._open[unit.key]:
                del self._todo[place]
                return unit
        return None

    def again(self, unit: Unit, *, first: bool = False) -> None:
        """A unit whose worker died; first, if it had not begun."""
        (self._todo.appendleft if first else self._todo.append)(unit)

    def died(self, unit: Unit, why: str, *, attempts: int) -> Iterator[Retried | Failed]:
        """A worker died over a unit, which is tried again, or given up after so many attempts."""
        self._deaths[unit.key] += 1
        if self._deaths[unit.key] < attempts:
            self.again(unit)
            yield Retried(unit.key, why)
            return
        yield Failed(unit.key, f"{why}, {attempts} times")
        yield from self.ended(unit.key, failed=True)

    def ended(self, key: str, *, failed: bool) -> Iterator[Failed]:
        """A unit has a result, or will have none: then those that need it will have none either."""
        for other in self._needing.pop(key, ()):
            self._open[other].discard(key)
            waits = failed and [unit for unit in self._todo if unit.key == other]
            if waits:
                self._todo.remove(waits[0])
                yield Failed(other, "what it needs failed")
                yield from self.ended(other, failed=True)

    def stuck(self) -> LevelheadError:
        """When none can be taken and none is under way."""
        return LevelheadError(
            f"{len(self._todo)} units wait for each other",
            mend="report this: no unit may need itself, not by way of others either",
        )
