"""Which way of a measure is called bias.

Yang et al. 2025, Eq. 4 differentiates |SEAT| = sign x SEAT. The sign is an estimate like any other:
where the interval contains parity it is not known, and no head may be called biased.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from levelhead.core.errors import UnknownName
from levelhead.locate.head_map import Direction

if TYPE_CHECKING:
    from levelhead.core.results import Estimate
    from levelhead.measures.metric import Aspect

Sign = Literal["found", "+", "-"]


def orientation(aspect: Aspect, estimate: Estimate, sign: Sign = "found") -> Direction:
    """The direction of a headline, from its value on the find half.

    Args:
        aspect: the headline.
        estimate: its value there.
        sign: "+" or "-" says it beforehand, which is told beside every result.
    """
    if sign not in ("found", "+", "-"):
        raise UnknownName("sign", str(sign), ("found", "+", "-"))
    parity = aspect.parity
    shown = f"{estimate.value:.3g} {estimate.interval} on the find half"
    if sign != "found":
        way: Literal[-1, 1] = 1 if sign == "+" else -1
        against = parity is not None and way * (estimate.value - parity) < 0
        return Direction(
            sign=way,
            why=f"given, {'AGAINST what was found' if against else 'not found'}: {shown}",
        )
    if aspect.role == "utility":
        return Direction(sign=0, why=f"{aspect.name} is a price, not a bias")
    if aspect.role == "parity":
        return Direction(sign=-1, why=f"less is more bias: {aspect.direction}")
    if parity is None or aspect.alternative == "greater":
        return Direction(sign=1, why=f"larger is more: {aspect.direction}")
    if parity in estimate.interval:
        return Direction(sign=0, why=f"the interval contains parity {parity:g}: {shown}")
    return Direction(sign=1 if estimate.value > parity else -1, why=shown)
