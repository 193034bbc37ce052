"""The direction of a measure that is called bias.

Yang et al. 2025, Eq. 4 differentiates |SEAT| = sign x SEAT. The sign is an estimate like any other:
if the interval contains parity, it is unknown, and no head may be called biased.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from levelhead.core.errors import require_option
from levelhead.locate.head_map import BiasSign

if TYPE_CHECKING:
    from levelhead.core.results import Estimate
    from levelhead.measures.metric import Metric

SignOption = Literal["auto", "+", "-"]


def determine_bias_sign(
    metric: Metric, estimate: Estimate, bias_direction: SignOption = "auto"
) -> BiasSign:
    """Determine the direction of bias of a primary metric from its value on the discovery half.

    Args:
        metric: The primary metric.
        estimate: Its estimate on the discovery half.
        bias_direction: "+" or "-" sets the direction beforehand, which every result states; "auto"
            takes it from the estimate.
    """
    require_option("bias direction", bias_direction, ("auto", "+", "-"))
    parity = metric.parity
    value_text = f"{estimate.value:.3g} {estimate.interval} on the find half"
    if bias_direction != "auto":
        direction: Literal[-1, 1] = 1 if bias_direction == "+" else -1
        # The user's direction stands, but a map against its own data must say so.
        contradicts_data = parity is not None and direction * (estimate.value - parity) < 0
        return BiasSign(
            sign=direction,
            reason=f"given, {'AGAINST what was found' if contradicts_data else 'not found'}: "
            f"{value_text}",
        )
    if metric.role == "utility":
        return BiasSign(sign=0, reason=f"{metric.name} is a price, not a bias")
    # A share of equal treatment is bias where it falls.
    if metric.role == "parity":
        return BiasSign(sign=-1, reason=f"less is more bias: {metric.direction}")
    # A value that is never negative, such as |SEAT|, has one direction by construction.
    if parity is None or metric.alternative == "greater":
        return BiasSign(sign=1, reason=f"larger is more: {metric.direction}")
    # Without a clear sign no head can be called biased: its score's direction would be arbitrary.
    if parity in estimate.interval:
        return BiasSign(sign=0, reason=f"the interval contains parity {parity:g}: {value_text}")
    return BiasSign(sign=1 if estimate.value > parity else -1, reason=value_text)
