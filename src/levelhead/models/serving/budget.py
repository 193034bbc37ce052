"""Budget of tokens or of money for requests to a server."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, final

from levelhead.core.errors import LevelheadError

if TYPE_CHECKING:
    from collections.abc import Sequence

BYTES_PER_TOKEN = 3
"""Estimate for prompts whose tokens are unknown before the answer: English has about four bytes per
token, so that the estimate is rather too high; the server's count replaces it."""
MESSAGE_TOKENS = 8
"""Estimate of the tokens that a chat template adds to each message."""


SPENT = "the budget is spent"
"""Beginning of the error of a spent budget."""


class BudgetSpentError(LevelheadError):
    """The next request would exceed the budget of tokens or of money."""


class TokenCounts(NamedTuple):
    """Numbers of tokens of one or several requests."""

    prompt: int = 0
    completion: int = 0


def estimate_prompt_tokens(texts: Sequence[str]) -> int:
    """Estimate the number of tokens of some messages or texts, rather too high."""
    return sum(len(text.encode()) // BYTES_PER_TOKEN + 1 + MESSAGE_TOKENS for text in texts)


@final
@dataclass
class TokenBudget:
    """Limit of tokens or of money, and what was used of it. Several models may share it.

    A request counts with its largest possible answer before it is sent, and with the server's count
    afterwards. A request without an answer keeps its estimate: the server may charge for it.
    """

    max_tokens: int | None = None
    """Tokens of prompts and completions; None: no limit."""
    max_cost: float | None = None
    """Money, in the unit of both price fields; None: no limit."""
    prompt_price: float = 0.0
    """Price of a million tokens of prompts."""
    completion_price: float = 0.0
    """Price of a million generated tokens."""
    used: TokenCounts = field(default=TokenCounts(), init=False)
    """Tokens of answered requests, and estimates for those that are on their way."""
    n_requests: int = field(default=0, init=False)
    _spent: str = field(default="", init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        limits = [limit for limit in (self.max_tokens, self.max_cost) if limit is not None]
        rates = (self.prompt_price, self.completion_price)
        # `not >=` refuses NaN as well: no comparison with it would ever end a budget.
        if any(not number >= 0 for number in (*limits, *rates)):
            raise LevelheadError(f"a negative budget or price: {self}", hint="give positive ones")
        if self.max_cost is not None and not any(rates):
            raise LevelheadError(
                "a budget of money needs the price of a token",
                hint="give prompt_price and completion_price, for a million tokens each",
            )

    @property
    def cost(self) -> float:
        """Money that was used."""
        return self._cost_of(self.used)

    def reserve(self, counts: TokenCounts) -> None:
        """Count a request before it is sent.

        Raises:
            BudgetSpentError: it would exceed the budget; all later requests are refused as well.
        """
        with self._lock:
            # Requests come from several threads: the check and the count must be one step.
            total = _add(self.used, counts)
            n_tokens, cost = total.prompt + total.completion, self._cost_of(total)
            is_over = (self.max_tokens is not None and n_tokens > self.max_tokens) or (
                self.max_cost is not None and cost > self.max_cost
            )
            # Later requests that would still fit are refused too: otherwise the short items alone
            # would be answered.
            if is_over and not self._spent:
                self._spent = self._describe()
            if self._spent:
                raise BudgetSpentError(
                    self._spent,
                    hint="raise the budget and run again with the same store: stored responses "
                    "are not requested twice",
                )
            self.used = total
            self.n_requests += 1

    def settle(self, reserved: TokenCounts, reported: TokenCounts | None) -> None:
        """Replace the estimate of a request by the server's count, if it reports any."""
        if reported is None:
            return
        with self._lock:
            change = TokenCounts(
                reported.prompt - reserved.prompt, reported.completion - reserved.completion
            )
            self.used = _add(self.used, change)

    def _cost_of(self, counts: TokenCounts) -> float:
        return (counts.prompt * self.prompt_price + counts.completion * self.completion_price) / 1e6

    def _describe(self) -> str:
        n_tokens = self.used.prompt + self.used.completion
        parts = []
        if self.max_tokens is not None:
            parts.append(f"{n_tokens} of {self.max_tokens} tokens")
        if self.max_cost is not None:
            parts.append(f"{self.cost:.4g} of {self.max_cost:g} in money")
        return (
            f"{SPENT}: {' and '.join(parts)} in {self.n_requests} requests; "
            "the next one may exceed it"
        )


def _add(first: TokenCounts, second: TokenCounts) -> TokenCounts:
    return TokenCounts(first.prompt + second.prompt, first.completion + second.completion)
