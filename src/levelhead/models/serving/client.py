"""Requests to a server by the official `openai` client, with limits on everything that it sends.

The client repeats requests after 429 and 5xx, waits as `Retry-After` says, and has the timeouts.
Added here: no redirects, no key in any message, bounded bodies, strict JSON, a budget, and several
requests at a time.
"""

from __future__ import annotations

import json
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeVar, final
from urllib.parse import urlsplit

import httpx2
import openai

from levelhead.core.errors import LevelheadError
from levelhead.models.serving.addresses import LOCAL_HOSTS
from levelhead.models.serving.budget import TokenCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from levelhead.models.serving.budget import TokenBudget

MAX_BODY_BYTES = 1 << 28
"""Largest answer: log-probabilities of a complete vocabulary are some tens of megabytes."""
MAX_QUOTED = 300
"""Characters of a server's message that errors quote: it may be a web page of any size."""
NO_KEY = "none"
"""The openai client requires some key; it is removed from the request."""
MAX_UNANSWERED = 3
"""Requests in a row without an answer, each after all retries, before no further one is sent: a run
of thousands of requests to a server that hangs would wait for days."""
Item = TypeVar("Item")
Answer = TypeVar("Answer")


class ServerStatusError(LevelheadError):
    """The server answers with an HTTP error, after all retries."""

    def __init__(self, problem: str, *, hint: str, status: int) -> None:
        super().__init__(problem, hint=hint)
        self.status = status


class _NotSentError(Exception):
    """A request that was not sent, because one before it failed."""


class _BoundedStream(httpx2.SyncByteStream):
    """Body of an answer that ends with an error if it is too large or too slow."""

    def __init__(self, stream: Any, where: str, timeout: float) -> None:
        self._stream, self._where = stream, where
        self._deadline, self._timeout = time.monotonic() + timeout, timeout

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for chunk in self._stream:
            size += len(chunk)
            # The client's timeout is for each piece: a body that trickles would never end.
            if size > MAX_BODY_BYTES or time.monotonic() > self._deadline:
                raise LevelheadError(
                    f"{self._where} sends an answer without end: {size} bytes in at most "
                    f"{self._timeout:g} s",
                    hint="check the address, or give a larger timeout",
                )
            yield chunk

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()


@final
class ServerClient:
    """A connection to one server."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None,
        timeout: float,
        max_retries: int,
        concurrency: int,
        budget: TokenBudget | None,
    ) -> None:
        # Users give addresses with and without /v1; /tokenize is not under it.
        self.root = url.rstrip("/").removesuffix("/v1")
        self._key, self._timeout, self._budget = key, timeout, budget
        self._concurrency, self._max_retries = concurrency, max_retries
        self._n_unanswered = 0
        self._client = openai.OpenAI(
            api_key=key or NO_KEY,
            base_url=f"{self.root}/v1",
            timeout=timeout,
            max_retries=max_retries,
            http_client=httpx2.Client(
                timeout=timeout,
                # A redirected request would take the key to the new address.
                follow_redirects=False,
                # A proxy of the environment must not see requests to this machine, nor their key.
                trust_env=urlsplit(url).hostname not in LOCAL_HOSTS,
                event_hooks={
                    "request": [_header_cleaner(has_key=bool(key))],
                    "response": [_body_bounder(timeout)],
                },
            ),
        )
        # Models are not closed: their connections end with them.
        weakref.finalize(self, self._client.close)

    def get(self, path: str) -> dict[str, Any]:
        """Answer to a GET request, a JSON object."""
        return self._send(path, lambda url: self._client.get(url, cast_to=httpx2.Response))

    def post(
        self, path: str, body: dict[str, Any], *, counts: TokenCounts | None = None
    ) -> dict[str, Any]:
        """Answer to a POST request, a JSON object.

        Args:
            path: Path below the server's root, such as /v1/completions.
            body: JSON body.
            counts: Upper bound of the tokens that the request costs; None: it is free.
        """
        if self._budget is not None and counts is not None:
            self._budget.reserve(counts)
        answer = self._send(
            path, lambda url: self._client.post(url, cast_to=httpx2.Response, body=body)
        )
        if self._budget is not None and counts is not None:
            self._budget.settle(counts, _reported_counts(answer))
        return answer

    def map(
        self,
        function: Callable[[Item], Answer],
        items: Sequence[Item],
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Answer]:
        """Apply a function that sends requests to all items, several at a time, in their order.

        The first error ends the work: requests that were not sent yet never are.
        """
        stopped, lock, n_done = threading.Event(), threading.Lock(), 0

        def apply(item: Item) -> Answer:
            nonlocal n_done
            if stopped.is_set():
                raise _NotSentError
            try:
                answer = function(item)
            # Ctrl-C as well: after it, no further request may cost money.
            except BaseException:
                stopped.set()
                raise
            if progress is not None:
                with lock:
                    n_done += 1
                    progress(n_done, len(items))
            return answer

        if self._concurrency == 1 or len(items) < 2:
            return [apply(item) for item in items]
        with ThreadPoolExecutor(min(self._concurrency, len(items))) as pool:
            try:
                futures = [pool.submit(apply, item) for item in items]
                wait(futures)
            except BaseException:
                stopped.set()  # Ctrl-C: what was not sent yet stays so
                raise
        for future in futures:
            error = future.exception()
            if error is not None and not isinstance(error, _NotSentError):
                raise error
        return [future.result() for future in futures]

    # -- the parts of a request

    def _send(self, path: str, send: Callable[[str], httpx2.Response]) -> dict[str, Any]:
        where = self.root + path
        if self._n_unanswered >= MAX_UNANSWERED:
            raise LevelheadError(
                f"{self.root} left {self._n_unanswered} requests in a row without an answer: no "
                "further one is sent",
                hint="check the server, then run the same command again, which asks for what is "
                "missing",
            )
        try:
            response = send(where)
            self._n_unanswered = 0
        except LevelheadError:  # a body without end
            self._n_unanswered += 1
            raise
        except openai.APIStatusError as error:
            raise ServerStatusError(
                f"{where} answers {error.status_code}: {self._quote(error.response.text)}",
                hint="read the server's log",
                status=error.status_code,
            ) from None
        except openai.APITimeoutError:
            self._n_unanswered += 1
            raise LevelheadError(
                f"{where} did not answer within {self._timeout:g} s, {self._max_retries + 1} times",
                hint="give a larger timeout, or less concurrency",
            ) from None
        except openai.APIConnectionError as error:
            self._n_unanswered += 1
            raise LevelheadError(
                f"{self.root} cannot be reached: {self._quote(str(error.__cause__ or error))}",
                hint="check that the server runs there",
            ) from None
        # Broken transfers, and headers that the client cannot read.
        except (openai.OpenAIError, httpx2.HTTPError, ValueError) as error:
            raise LevelheadError(
                f"{where} gives no readable answer: {self._quote(str(error))}",
                hint="check the address",
            ) from None
        return self._parse(where, response.content)

    def _parse(self, where: str, content: bytes) -> dict[str, Any]:
        try:
            # Python would accept NaN and Infinity, which JSON does not have.
            answer = json.loads(content.decode(), parse_constant=_refuse_constant)
        # RecursionError: brackets without end.
        except (ValueError, RecursionError) as error:
            quoted = self._quote(content[: 4 * MAX_QUOTED].decode(errors="replace"))
            raise LevelheadError(
                f"{where} does not answer with JSON ({self._quote(str(error))}): {quoted!r:.80}",
                hint="check the address",
            ) from None
        if not isinstance(answer, dict):
            raise LevelheadError(
                f"{where} does not answer with a JSON object", hint="check the address"
            )
        return answer

    def _quote(self, message: str) -> str:
        # Some servers repeat the key in their error message.
        message = message.replace(self._key, "...") if self._key else message
        return message[:MAX_QUOTED]


# Functions, not methods: the client must not hold the object whose end closes it.
def _header_cleaner(*, has_key: bool) -> Callable[[httpx2.Request], None]:
    def clean_headers(request: httpx2.Request) -> None:
        if not has_key:
            request.headers.pop("Authorization", None)
        # The client would take them from the environment, for whichever server this is.
        for name in ("OpenAI-Organization", "OpenAI-Project"):
            request.headers.pop(name, None)
        # A compressed body could become larger than what is bounded here.
        request.headers["Accept-Encoding"] = "identity"

    return clean_headers


def _body_bounder(timeout: float) -> Callable[[httpx2.Response], None]:
    def bound_body(response: httpx2.Response) -> None:
        where = str(response.request.url).split("?")[0]
        response.stream = _BoundedStream(response.stream, where, timeout)

    return bound_body


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _reported_counts(answer: dict[str, Any]) -> TokenCounts | None:
    usage = answer.get("usage")
    if not isinstance(usage, dict):
        return None
    numbers = [usage.get(name, 0) for name in ("prompt_tokens", "completion_tokens")]
    # A negative count would refund tokens: without a usable count the estimate stays.
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        return None
    return TokenCounts(*numbers)
