"""Agreement of verbs after a swap of "she" or "he" for "they": she is -> they are.

Only present forms of the third person and "was" change. The verb is looked for beside the pronoun;
where a second verb may have to agree, or no verb can be identified, the text is refused. The other
direction is refused altogether: "they" may be several people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from levelhead.data.tokenize import fold_case, match_case, strip_clitic

if TYPE_CHECKING:
    from collections.abc import Sequence

PLURAL_PRONOUNS = frozenset({"they", "them", "their", "theirs"})
"""Words of a person or of several: which of the two cannot be seen in the word."""
SEVERAL_PEOPLE = "it may stand for several people"
AUXILIARIES = {
    "is": "are",
    "was": "were",
    "has": "have",
    "does": "do",
    "isn't": "aren't",
    "wasn't": "weren't",
    "hasn't": "haven't",
    "doesn't": "don't",
}
UNCHANGED = frozenset(
    "can could will would shall should may might must had did ought dare need can't cannot "
    "couldn't won't wouldn't shan't shouldn't mightn't mustn't hadn't didn't are were have "
    "do".split()
)
"""Forms that are the same in the singular and in the plural, or are plural already."""
ADVERBS = frozenset(
    "also always almost already certainly clearly clearly currently even ever finally first "
    "frequently generally hardly however instead just later mostly mainly never next not now often "
    "once only originally perhaps primarily probably quickly rarely really recently simply since "
    "sometimes soon still suddenly then therefore thus too twice usually once alone himself "
    "herself themself".split()
)
NO_VERB = frozenset(
    "as this his its is's us less news always perhaps besides towards afterwards sometimes "
    "thus plus minus across".split()
)
"""Words in "s" that are no verbs."""
CONJUNCTIONS = frozenset({"and", "but", "or"})
CLAUSE_STARTS = frozenset(
    "who whom what which when where why how and but or so then neither nor if as than".split()
)
SENTENCE_ENDS = frozenset(".!?;")
MAX_DISTANCE = 4
"""Adverbs between a pronoun and its verb."""


class VerbChange(NamedTuple):
    """A verb, by the position of its word, and the form that agrees.

    At the position of the pronoun itself it is the clitic after it.
    """

    position: int
    word: str


class Agreement(NamedTuple):
    """The verbs to change, or why this is not known."""

    changes: tuple[VerbChange, ...] = ()
    reason: str = ""


def agree_with_plural(words: Sequence[str], i: int) -> Agreement:
    """Find the verbs whose subject is the pronoun at i, and their plural forms.

    >>> agree_with_plural(["She", "often", "walks", "home", "."], 0).changes
    (VerbChange(position=2, word='walk'),)
    >>> agree_with_plural(["Where", "is", "he", "?"], 2).changes
    (VerbChange(position=1, word='are'),)
    >>> agree_with_plural(["He", "left", "."], 0).changes
    ()

    Args:
        words: words and signs of a text.
        i: position of a pronoun in the subject's role.
    """
    clitic = strip_clitic(words[i])[1]
    if clitic:
        return _agree_clitic(words, i, clitic)
    if i + 1 < len(words) and fold_case(words[i + 1]) in ("and", "or"):
        # "She and her friend are": the verb agrees with both already.
        return Agreement()
    if inverted := _inverted_auxiliary(words, i):
        return Agreement((inverted,))
    for j in range(i + 1, min(i + 1 + MAX_DISTANCE, len(words))):
        word = fold_case(words[j])
        if word in ADVERBS or word.endswith("ly") or (word == "," and j == i + 1):
            continue
        if word in AUXILIARIES:
            return _with_second_verb(words, j, (_change(words, j, AUXILIARIES[word]),))
        if word in UNCHANGED:
            return Agreement()
        plural = pluralize_verb(word)
        if plural is None:
            # Past tense, or a base form after "that": neither changes. A later verb in "-s" would
            # be of another subject.
            return Agreement() if word[:1].isalpha() else Agreement(reason="its verb was not found")
        return _with_second_verb(words, j, (_change(words, j, plural),))
    return Agreement(reason="its verb was not found") if i + 1 < len(words) else Agreement()


def pluralize_verb(word: str) -> str | None:
    """Return the plural of a verb in the third person of the present; None for any other word.

    >>> [pluralize_verb(word) for word in ("walks", "tries", "watches", "goes", "ran", "lives")]
    ['walk', 'try', 'watch', 'go', None, 'live']
    """
    if not word.endswith("s") or word.endswith(("ss", "us", "is")) or word in NO_VERB:
        return None
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zzes", "oes")):
        return word[:-2]
    return word[:-1] if len(word) > 2 else None


def _agree_clitic(words: Sequence[str], i: int, clitic: str) -> Agreement:
    """She's -> they're or they've; other clitics stay."""
    if fold_case(clitic[1:]) != "s":
        return Agreement()
    after = fold_case(words[i + 1]) if i + 1 < len(words) else ""
    if after in ("been", "got", "had", "gone", "done", "seen", "taken", "become"):
        return Agreement((VerbChange(i, f"{clitic[0]}ve"),))
    if after.endswith(("ed", "en")):
        return Agreement(reason=f"{words[i]!r} may be short for is or for has")
    return Agreement((VerbChange(i, f"{clitic[0]}re"),))


def _inverted_auxiliary(words: Sequence[str], i: int) -> VerbChange | None:
    """The auxiliary before the pronoun in a question: is she, where does he."""
    if i == 0 or (plural := AUXILIARIES.get(fold_case(words[i - 1]))) is None:
        return None
    before = fold_case(words[i - 2]) if i > 1 else ""
    is_start = not before or not before[0].isalnum() or before in CLAUSE_STARTS
    return _change(words, i - 1, plural) if is_start else None


def _with_second_verb(
    words: Sequence[str], verb: int, changes: tuple[VerbChange, ...]
) -> Agreement:
    """Add a verb that a conjunction joins to the first; refuse if there may be another."""
    for j in range(verb + 1, len(words) - 1):
        word = fold_case(words[j])
        if word in SENTENCE_ENDS:
            break
        if word not in CONJUNCTIONS:
            continue
        following = fold_case(words[j + 1])
        if following in AUXILIARIES:
            changes = (*changes, _change(words, j + 1, AUXILIARIES[following]))
        elif pluralize_verb(following) is not None:
            # "and waves": a verb of the same subject, or a noun.
            return Agreement(reason=f"{words[j + 1]!r} after {words[j]!r} may have to agree")
    return Agreement(changes)


def _change(words: Sequence[str], position: int, plural: str) -> VerbChange:
    return VerbChange(position, match_case(plural, words[position]))
