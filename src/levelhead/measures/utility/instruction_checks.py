"""Exact checks of the form of an answer, after the verifiable instructions of IFEval.

Zhou et al. 2023. A check sees a text without spaces around it and an argument. An empty text passes
none of them. As in IFEval's, a JSON object may be fenced as code, and quotation marks around a text
are ignored where its end or its wording is checked.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from levelhead.core.errors import require_option

if TYPE_CHECKING:
    from collections.abc import Callable

MIN_WORDS = 3
"""Words of an answer that shows it lacks something: "Yes." would lack nearly everything."""


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+(?:['\u2019-][^\W_]+)*", text.casefold())


def _has_words(text: str, argument: str) -> bool:
    low, high = map(int, argument.split("-"))
    return low <= len(_words(text)) <= high


def _is_upper(text: str, argument: str) -> bool:
    return text.isupper()


def _is_lower(text: str, argument: str) -> bool:
    return text.islower()


def _is_json(text: str, argument: str) -> bool:
    body = re.sub(r"^```(?:json)?\s*|\s*```$", "", text, flags=re.IGNORECASE)
    try:
        value = json.loads(body)
    except ValueError:
        return False
    return isinstance(value, dict) and set(value) == set(argument.split(","))


def _has_bullets(text: str, argument: str) -> bool:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return len(lines) == int(argument) and all(re.match(r"[-*]\s+\w", line) for line in lines)


def _has_parts(text: str, argument: str) -> bool:
    parts = [part.strip(" .") for part in text.split(",")]
    return len(parts) == int(argument) and all(len(_words(part)) == 1 for part in parts)


def _begins(text: str, argument: str) -> bool:
    return _words(text)[:1] == _words(argument)[:1]


def _ends(text: str, argument: str) -> bool:
    return _unquoted(text).casefold().endswith(argument.casefold())


def _contains(text: str, argument: str) -> bool:
    return argument.casefold() in _words(text)


def _lacks(text: str, argument: str) -> bool:
    words = _words(text)
    return len(words) >= MIN_WORDS and argument.casefold() not in words


def _lacks_sign(text: str, argument: str) -> bool:
    return len(_words(text)) >= MIN_WORDS and argument not in text


def _has_sentences(text: str, argument: str) -> bool:
    # The last sentence must have ended, too: a text that was cut off is none of two sentences.
    ends = re.findall(r"[.!?]+[\"'\u201d)]*(?=\s|$)", text)
    return len(ends) == int(argument) and bool(re.search(r"[.!?][\"'\u201d)]*$", text))


def _is_wrapped(text: str, argument: str) -> bool:
    return len(text) > 2 and text[0] == text[-1] == argument


def _has_title(text: str, argument: str) -> bool:
    return bool(re.search(r"<<[^<>\n]*\w[^<>\n]*>>", text))


def _equals(text: str, argument: str) -> bool:
    return _unquoted(text) == argument


def _unquoted(text: str) -> str:
    return text.strip().strip('"\u201c\u201d').strip()


CHECKS: dict[str, Callable[[str, str], bool]] = {
    "words": _has_words,
    "upper": _is_upper,
    "lower": _is_lower,
    "json": _is_json,
    "bullets": _has_bullets,
    "parts": _has_parts,
    "begins": _begins,
    "ends": _ends,
    "contains": _contains,
    "lacks": _lacks,
    "lacks_sign": _lacks_sign,
    "sentences": _has_sentences,
    "wrapped": _is_wrapped,
    "title": _has_title,
    "equals": _equals,
}
"""Checks by name: of a text without spaces around it, with an argument.

`words`: number of words in a range such as "1-10"; `json`: an object with these keys; `bullets`,
`parts`, `sentences`: this number of lines with a bullet, of words separated by commas, of
sentences; `begins`, `ends`, `contains`, `lacks`: with these words; `lacks_sign`: without this sign;
`wrapped`: between two of this sign; `title`: <<a title>>; `equals`: this text.
"""


def follows_instruction(text: str, check: str, argument: str) -> bool:
    """Whether an answer has the required form.

    >>> follows_instruction(" Blue.", "words", "1-1"), follows_instruction("", "lacks", "the")
    (True, False)
    """
    require_option("check of an instruction", check, CHECKS)
    return bool(_words(text)) and CHECKS[check](text.strip(), argument)
