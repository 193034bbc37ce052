"""From a data set's file to its items. One function a format; a row that does not fit is an error.

Line ends inside quotes are kept; nothing is dropped silently, and nothing is repaired: corrections
are overlays, kept apart from what was published.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from levelhead.core.errors import LevelheadError
from levelhead.data.records import (
    Association,
    Item,
    Labelled,
    MinimalPair,
    Passage,
    Sentence,
    Template,
    TextPair,
    TwinTriple,
    WordSets,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class BadRow(LevelheadError):
    """A row of a data set that is not as its format says."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(
            f"row {number}: {why}", mend="fetch the file again; if it stays, report it"
        )


def stereoset(text: str, part: str) -> Iterator[Item]:
    """StereoSet, one JSON object a line."""
    for i, row in _json_lines(text):
        yield Association(
            f"{part}-{i}",
            *(
                _field(row, i, name)
                for name in (
                    *("type", "bias_type", "target", "context"),
                    *("stereotype", "anti-stereotype", "unrelated"),
                )
            ),
        )


def twins(text: str, part: str) -> Iterator[Item]:
    """The gender-swapped StereoSet: three rows a context, in any order."""
    found: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    first: dict[str, int] = {}
    for i, row in _table(text, ","):
        if "gender_swapped_conext" in row:  # the test file's header is misspelt
            row["gender_swapped_context"] = row["gender_swapped_conext"]
        for name in ("gender", "context", "next_sentence", *_SWAPPED):
            _field(row, i, name)
        key, label = _field(row, i, "context_id"), _field(row, i, "label")
        first.setdefault(key, i)
        if label in found[key]:
            raise BadRow(i, f"context {key} has a second row labelled {label}")
        found[key][label] = row
    for key, rows in found.items():
        if set(rows) != {"stereotype", "anti-stereotype", "unrelated"}:
            raise BadRow(first[key], f"context {key} has the labels {sorted(rows)}")
        yield _triple(f"{part}-{key}", rows)


_SWAPPED = ("gender_swapped_context", "gender_swapped_next_sentence")


def _triple(name: str, rows: dict[str, dict[str, str]]) -> TwinTriple:
    whole = rows["stereotype"]

    def said(label: str) -> str:
        return rows[label]["next_sentence"]

    def twin(label: str) -> str:
        return rows[label]["gender_swapped_next_sentence"]

    return TwinTriple(
        id=name,
        group=whole["gender"],
        context=whole["context"],
        stereotype=said("stereotype"),
        anti_stereotype=said("anti-stereotype"),
        unrelated=said("unrelated"),
        twin_context=whole["gender_swapped_context"],
        twin_stereotype=twin("stereotype"),
        twin_anti_stereotype=twin("anti-stereotype"),
        twin_unrelated=twin("unrelated"),
        other_context=next(
            (
                row[field]
                for row in rows.values()
                for field in ("context", "gender_swapped_context")
                if row[field] != whole[field]
            ),
            "",
        ),
    )


def crows(text: str, part: str) -> Iterator[Item]:
    """CrowS-Pairs."""
    for i, row in _table(text, ","):
        yield MinimalPair(
            f"{part}-{_field(row, i, '')}",
            _field(row, i, "bias_type"),
            _field(row, i, "stereo_antistereo"),
            _field(row, i, "sent_more"),
            _field(row, i, "sent_less"),
        )


def winobias(text: str, part: str) -> Iterator[Item]:
    """WinoBias: a number, then a sentence with the pronoun and whom it means in brackets."""
    for i, line in enumerate(_lines(text)):
        number, _, sentence = line.partition(" ")
        marked = re.findall(r"\[([^\]]+)\]", sentence)
        if not number.isdigit() or len(marked) < 2:
            raise BadRow(i, f"no numbered sentence with two brackets: {line!r:.60}")
        yield Template(
            f"{part}-{number}",
            re.sub(r"[\[\]]", "", sentence),
            (("meant", marked[0]), ("pronoun", marked[1])),
        )


def winogender(text: str, part: str) -> Iterator[Item]:
    """Winogender: occupation.participant.answer.gender.txt names a sentence."""
    for i, row in _table(text, "\t", quoted=False):
        name = _field(row, i, "sentid")
        slots = name.removesuffix(".txt").split(".")
        if len(slots) != 4:
            raise BadRow(i, f"no name of four parts: {name}")
        keys = ("occupation", "participant", "answer", "gender")
        yield Template(name, _field(row, i, "sentence"), tuple(zip(keys, slots, strict=True)))


def bec(text: str, part: str) -> Iterator[Item]:
    """BEC-Pro: a sentence and its three masked forms."""
    keys = ("Sent_TM", "Sent_AM", "Sent_TAM", "Person", "Gender", "Profession", "Prof_Gender")
    for i, row in _table(text, "\t", quoted=False):
        slots = tuple((key.lower(), _field(row, i, key)) for key in keys)
        yield Template(f"{part}-{i}", _field(row, i, "Sentence"), slots)


def nli_templates(text: str, part: str) -> Iterator[Item]:
    """Verb and object of Dev et al.'s inference pairs; `nli.pairs` makes pairs of them."""
    for i, row in _table(text, ","):
        slots = tuple((key, _field(row, i, key)) for key in ("verb", "object", "verb_class"))
        yield Template(
            f"{part}-{_field(row, i, 'template_id')}", f"{slots[0][1]} {slots[1][1]}", slots
        )


NLI = ("entailment", "neutral", "contradiction")


def nli_coal(text: str, part: str) -> Iterator[Item]:
    """Inference pairs that differ in one word: ids occupation/sentence/that word."""
    sentences: dict[str, dict[str, int]] = {}
    for i, row in _json_lines(text):
        first, second = _field(row, i, "sentence1"), _field(row, i, "sentence2")
        occupation = _field(row, i, "occ_word")
        if (label := _field(row, i, "label")) not in NLI:
            raise BadRow(i, f"the label is {label!r}")
        word = _put_instead(first, occupation, second)
        if word is None:
            raise BadRow(i, f"the sentences differ in more than {occupation!r}")
        known = sentences.setdefault(occupation, {})
        number = known.setdefault(first, len(known))
        yield TextPair(f"{occupation}/{number}/{word}", first, second, label)


def _put_instead(text: str, word: str, other: str) -> str | None:
    """What the other text has in the place of one occurrence of a word."""
    for match in re.finditer(re.escape(word), text):
        head, tail = text[: match.start()], text[match.end() :]
        if other.startswith(head) and other.endswith(tail) and len(head + tail) < len(other):
            return other[len(head) : len(other) - len(tail)]
    return None


def nli_tsv(text: str, part: str) -> Iterator[Item]:
    """Inference pairs with labels 0, 1, 2."""
    for i, row in _table(text, "\t", quoted=False):
        label = _field(row, i, "label")
        if label not in ("0", "1", "2"):
            raise BadRow(i, f"the label is {label!r}")
        pair = (_field(row, i, "premise"), _field(row, i, "hypothesis"))
        yield TextPair(f"{part}-{i}", *pair, NLI[int(label)])


def glue_pairs(
    first: str, second: str, label: str = "label", *, quoted: bool = False
) -> Callable[[str, str], Iterator[Item]]:
    """A reader of GLUE pairs, by the names of its columns; copies of some tasks are quoted."""

    def read(text: str, part: str) -> Iterator[Item]:
        for i, row in _table(text, "\t", quoted=quoted):
            yield TextPair(f"{part}-{i}", row[first], row[second], _field(row, i, label))

    return read


def glue_wnli(text: str, part: str) -> Iterator[Item]:
    """WNLI without a header."""
    for i, line in enumerate(_lines(text)):
        cells = line.split("\t")
        if len(cells) != 3:
            raise BadRow(i, f"{len(cells)} cells")
        yield TextPair(f"{part}-{i}", *cells)


def glue_cola(text: str, part: str) -> Iterator[Item]:
    """CoLA: source, label, the author's star, sentence."""
    for i, line in enumerate(_lines(text)):
        cells = line.split("\t")
        if len(cells) != 4:
            raise BadRow(i, f"{len(cells)} cells")
        yield Labelled(f"{part}-{i}", cells[3], cells[1])


def glue_sst2(text: str, part: str) -> Iterator[Item]:
    """SST-2."""
    for i, row in _table(text, "\t", quoted=False):
        yield Labelled(f"{part}-{i}", _field(row, i, "sentence"), _field(row, i, "label"))


def wikitext(text: str, part: str) -> Iterator[Item]:
    """WikiText: paragraphs and headings, blank lines left out; copies with CRLF exist."""
    document = ""
    rows = (line.rstrip("\r") for line in text.split("\n") if line.strip())
    for i, line in enumerate(rows):
        if re.fullmatch(r" = [^=].*[^=] = ", line):
            document = line.strip(" =")
        yield Sentence(f"{part}-{i}", document, line)


def sentences(text: str, part: str) -> Iterator[Item]:
    """A document, or a number, and a sentence a line; spaces before signs are taken out."""
    for i, line in enumerate(_lines(text)):
        document, tab, sentence = line.partition("\t")
        if not tab:
            raise BadRow(i, "no tab between document and sentence")
        yield Sentence(f"{part}-{i}", document, detokenized(sentence))


def lines(text: str, part: str) -> Iterator[Item]:
    """A text a line."""
    for i, line in enumerate(_lines(text)):
        yield Sentence(f"{part}-{i}", "", line)


def counter(text: str, part: str) -> Iterator[Item]:
    """Counter-stereotype pairs: a sentence, its twin, and the words in question."""
    keys = ("source", "gender", "attribute", "counterpart", "target", "counter_sentence")
    for i, row in _table(text, "\t", quoted=False):
        slots = tuple((key, _field(row, i, key)) for key in keys)
        yield Template(f"{part}-{i}", _field(row, i, "sentence"), slots)


def seat(text: str, part: str) -> Iterator[Item]:
    """A SEAT test: targ1, targ2, attr1, attr2, each with a category and examples."""
    test = _json(text)
    found = []
    for role in ("targ1", "targ2", "attr1", "attr2"):
        if role not in test:
            raise BadRow(0, f"there is no {role}")
        found.append((role, str(test[role]["category"]), tuple(test[role]["examples"])))
    yield WordSets(part, tuple(found))


def weat(text: str, part: str) -> Iterator[Item]:
    """WEFE's WEAT sets, by name."""
    for i, (name, words) in enumerate(_json(text).items()):
        if not isinstance(words, list):
            raise BadRow(i, f"{name!r} is no list of words")
        yield WordSets(name, (("words", name, tuple(words)),))


def gap(text: str, part: str) -> Iterator[Item]:
    """GAP passages."""
    for i, row in _table(text, "\t", quoted=False):
        yield Passage(
            _field(row, i, "ID"),
            _field(row, i, "Text"),
            _field(row, i, "Pronoun"),
            int(_field(row, i, "Pronoun-offset")),
            (_field(row, i, "A"), _field(row, i, "B")),
            (_truth(row, i, "A-coref"), _truth(row, i, "B-coref")),
        )


def json_file(text: str, part: str) -> Iterator[Item]:
    """A JSON file of word lists, as one item: (path, name, words)."""
    found: list[tuple[str, str, tuple[str, ...]]] = []

    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, f"{path}/{key}")
        elif isinstance(value, list):
            if all(isinstance(word, str) for word in value):
                found.append((path.rpartition("/")[0], path.rpartition("/")[2], tuple(value)))
            else:
                for i, inner in enumerate(value):
                    walk(inner, f"{path}/{i}")

    walk(json.loads(text), "")
    yield WordSets(part, tuple(found))


READERS: dict[str, Callable[[str, str], Iterator[Item]]] = {
    "stereoset": stereoset,
    "twins": twins,
    "crows": crows,
    "winobias": winobias,
    "winogender": winogender,
    "bec": bec,
    "nli_templates": nli_templates,
    "nli_coal": nli_coal,
    "nli_tsv": nli_tsv,
    "glue_rte": glue_pairs("sentence1", "sentence2", quoted=True),
    "glue_mrpc": glue_pairs("sentence1", "sentence2", quoted=True),
    "glue_qnli": glue_pairs("question", "sentence"),
    "glue_qqp": glue_pairs("question1", "question2", quoted=True),
    "glue_stsb": glue_pairs("sentence1", "sentence2", "score"),
    "glue_wnli": glue_wnli,
    "glue_cola": glue_cola,
    "glue_sst2": glue_sst2,
    "wikitext": wikitext,
    "sentences": sentences,
    "lines": lines,
    "counter": counter,
    "seat": seat,
    "weat": weat,
    "gap": gap,
    "json": json_file,
}


def read(reader: str, text: str, part: str) -> Iterator[Item]:
    """The items of a file's text, by the reader's name; what is no such file is a BadRow."""
    count = 0
    try:
        for item in READERS[reader](text, part):
            count += 1
            yield item
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, csv.Error) as error:
        # A column, a type or a shape that the format has and this file has not.
        raise BadRow(count, f"{type(error).__name__}: {error}") from None


def detokenized(text: str) -> str:
    """Text whose signs were set apart by spaces, joined as people write it.

    >>> detokenized("Do n't go , he said ( twice ) .")
    "Don't go, he said (twice)."
    """
    text = re.sub(r"(\w) (n['\u2019]t)\b", r"\1\2", text)
    text = re.sub(r" ([.,;:!?)\]%\u2019\u201d])", r"\1", text)
    text = re.sub(r"([(\[\u201c\u2018$]) ", r"\1", text)
    return re.sub(r" (['\u2019](?:s|ll|d|re|ve|m)\b)", r"\1", text)


def _lines(text: str) -> list[str]:
    """Lines that end with a line feed and nothing else; the last empty one is none."""
    found = text.split("\n")
    return [line.removesuffix("\r") for line in (found[:-1] if found[-1] == "" else found)]


def _table(
    text: str, separator: str, *, quoted: bool = True
) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.reader(
        io.StringIO(text, newline="") if quoted else _lines(text),
        delimiter=separator,
        quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
    )
    header = next(reader, None)
    if header is None:
        raise BadRow(0, "the file is empty")
    header[0] = header[0].removeprefix("\ufeff")
    for i, cells in enumerate(reader):
        if len(cells) != len(header):
            raise BadRow(i, f"{len(cells)} cells under {len(header)} headings")
        yield i, dict(zip(header, cells, strict=True))


def _json_lines(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for i, line in enumerate(_lines(text)):
        try:
            yield i, json.loads(line)
        except ValueError as error:
            raise BadRow(i, f"no JSON: {error}") from None


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise BadRow(0, f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadRow(0, "no JSON object")
    return found


def _truth(row: dict[str, Any], i: int, name: str) -> bool:
    told = _field(row, i, name).upper()
    if told not in ("TRUE", "FALSE"):
        raise BadRow(i, f"{name!r} is {told!r}")
    return told == "TRUE"


def _field(row: dict[str, Any], i: int, name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or (value == "" and name):
        raise BadRow(i, f"{name!r} is missing or empty")
    return value
