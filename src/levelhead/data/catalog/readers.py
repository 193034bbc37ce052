"""Readers of data set files: one function per format, from the text of a file to its items.

A row that does not fit the format raises an error. Line ends inside quotes are preserved; no row is
dropped silently or repaired.
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
    BbqRow,
    BbqTarget,
    DatasetItem,
    GapPassage,
    LabelledExample,
    MinimalPair,
    Sentence,
    StereoSetItem,
    Template,
    TextPair,
    TwinTriple,
    WordSets,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class BadRowError(LevelheadError):
    """A row of a data set does not fit its format."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(
            f"row {number}: {reason}",
            hint="download the file again; if the error remains, report it",
        )


def read_stereoset(text: str, part: str) -> Iterator[DatasetItem]:
    """Read StereoSet, one JSON object per line."""
    for i, row in _read_json_lines(text):
        yield StereoSetItem(
            f"{part}-{i}",
            *(
                _read_field(row, i, name)
                for name in (
                    *("kind" if "kind" in row else "type", "bias_type", "target", "context"),
                    *("stereotype", "anti-stereotype", "unrelated"),
                )
            ),
        )


def read_twin_triples(text: str, part: str) -> Iterator[DatasetItem]:
    """Read the gender-swapped StereoSet: three rows per context, in any order."""
    rows_by_context: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    first_rows: dict[str, int] = {}
    for i, row in _read_table(text, ","):
        # The header of the published test file is misspelt.
        if "gender_swapped_conext" in row:
            row["gender_swapped_context"] = row["gender_swapped_conext"]
        for name in ("gender", "context", "next_sentence", *_SWAPPED):
            _read_field(row, i, name)
        key, label = _read_field(row, i, "context_id"), _read_field(row, i, "label")
        first_rows.setdefault(key, i)
        # A second row with the label would silently replace the first one.
        if label in rows_by_context[key]:
            raise BadRowError(i, f"context {key} has a second row labelled {label}")
        rows_by_context[key][label] = row
    for key, rows in rows_by_context.items():
        if set(rows) != {"stereotype", "anti-stereotype", "unrelated"}:
            raise BadRowError(first_rows[key], f"context {key} has the labels {sorted(rows)}")
        yield _make_twin_triple(f"{part}-{key}", rows)


_SWAPPED = ("gender_swapped_context", "gender_swapped_next_sentence")


def _make_twin_triple(name: str, rows: dict[str, dict[str, str]]) -> TwinTriple:
    stereotype_row = rows["stereotype"]

    def original(label: str) -> str:
        return rows[label]["next_sentence"]

    def swapped(label: str) -> str:
        return rows[label]["gender_swapped_next_sentence"]

    return TwinTriple(
        id=name,
        group=stereotype_row["gender"],
        context=stereotype_row["context"],
        stereotype=original("stereotype"),
        anti_stereotype=original("anti-stereotype"),
        unrelated=original("unrelated"),
        twin_context=stereotype_row["gender_swapped_context"],
        twin_stereotype=swapped("stereotype"),
        twin_anti_stereotype=swapped("anti-stereotype"),
        twin_unrelated=swapped("unrelated"),
        # Disagreeing rows are recorded for the linter and not repaired.
        other_context=next(
            (
                row[field]
                for row in rows.values()
                for field in ("context", "gender_swapped_context")
                if row[field] != stereotype_row[field]
            ),
            "",
        ),
    )


def read_crows_pairs(text: str, part: str) -> Iterator[DatasetItem]:
    """Read CrowS-Pairs."""
    for i, row in _read_table(text, ","):
        yield MinimalPair(
            f"{part}-{_read_field(row, i, '')}",
            _read_field(row, i, "bias_type"),
            _read_field(row, i, "stereo_antistereo"),
            _read_field(row, i, "sent_more"),
            _read_field(row, i, "sent_less"),
        )


def read_translated_crows_pairs(text: str, part: str) -> Iterator[DatasetItem]:
    """Read translations of CrowS-Pairs; where a sentence was not translated, it is empty."""
    for i, row in _read_table(text, ","):
        yield MinimalPair(
            f"{part}-{_read_field(row, i, 'id')}",
            _read_field(row, i, "bias_type"),
            _read_field(row, i, "stereo_antistereo"),
            row["sent_more"] or "",
            row["sent_less"] or "",
        )


def read_winobias(text: str, part: str) -> Iterator[DatasetItem]:
    """Read WinoBias: a number and a sentence with pronoun and referent in brackets."""
    for i, line in enumerate(_split_lines(text)):
        number, _, sentence = line.partition(" ")
        mentions = re.findall(r"\[([^\]]+)\]", sentence)
        if not number.isdigit() or len(mentions) < 2:
            raise BadRowError(i, f"not a numbered sentence with two brackets: {line!r:.60}")
        yield Template(
            f"{part}-{number}",
            re.sub(r"[\[\]]", "", sentence),
            (("meant", mentions[0]), ("pronoun", mentions[1])),
        )


def read_winogender(text: str, part: str) -> Iterator[DatasetItem]:
    """Read Winogender; ids are occupation.participant.answer.gender.txt."""
    for i, row in _read_table(text, "\t", quoted=False):
        name = _read_field(row, i, "sentid")
        slots = name.removesuffix(".txt").split(".")
        if len(slots) != 4:
            raise BadRowError(i, f"not an id of four parts: {name}")
        keys = ("occupation", "participant", "answer", "gender")
        yield Template(name, _read_field(row, i, "sentence"), tuple(zip(keys, slots, strict=True)))


def read_winogender_statistics(text: str, part: str) -> Iterator[DatasetItem]:
    """Read the share of women in Winogender's occupations: a word and its statistics."""
    for i, row in _read_table(text, "\t", quoted=False):
        slots = tuple((name, _read_field(row, i, name)) for name in row if name != "occupation")
        yield Template(f"{part}-{i}", _read_field(row, i, "occupation"), slots)


def read_bec_pro(text: str, part: str) -> Iterator[DatasetItem]:
    """Read BEC-Pro: a sentence and its three masked forms."""
    keys = ("Sent_TM", "Sent_AM", "Sent_TAM", "Person", "Gender", "Profession", "Prof_Gender")
    for i, row in _read_table(text, "\t", quoted=False):
        slots = tuple((key.lower(), _read_field(row, i, key)) for key in keys)
        yield Template(f"{part}-{i}", _read_field(row, i, "Sentence"), slots)


def read_nli_templates(text: str, part: str) -> Iterator[DatasetItem]:
    """Read verbs and objects of Dev et al. 2020, from which `make_nli_pairs` makes pairs."""
    for i, row in _read_table(text, ","):
        slots = tuple((key, _read_field(row, i, key)) for key in ("verb", "object", "verb_class"))
        yield Template(
            f"{part}-{_read_field(row, i, 'template_id')}", f"{slots[0][1]} {slots[1][1]}", slots
        )


NLI_LABELS = ("entailment", "neutral", "contradiction")


def read_nli_coal(text: str, part: str) -> Iterator[DatasetItem]:
    """Read NLI-CoAL: inference pairs that differ in one word; ids are occupation/sentence/word."""
    sentences: dict[str, dict[str, int]] = {}
    for i, row in _read_json_lines(text):
        first, second = _read_field(row, i, "sentence1"), _read_field(row, i, "sentence2")
        occupation = _read_field(row, i, "occ_word")
        if (label := _read_field(row, i, "label")) not in NLI_LABELS:
            raise BadRowError(i, f"the label is {label!r}")
        word = _find_substitute(first, occupation, second)
        if word is None:
            raise BadRowError(i, f"the sentences differ in more than {occupation!r}")
        # Sentences are numbered per occupation, so that ids do not depend on other occupations.
        sentence_numbers = sentences.setdefault(occupation, {})
        number = sentence_numbers.setdefault(first, len(sentence_numbers))
        yield TextPair(f"{occupation}/{number}/{word}", first, second, label)


def _find_substitute(text: str, word: str, other_text: str) -> str | None:
    """Return the text that replaces one occurrence of a word in another text; None if none does."""
    # The word may occur several times; only one occurrence differs between the texts.
    for match in re.finditer(re.escape(word), text):
        head, tail = text[: match.start()], text[match.end() :]
        if (
            other_text.startswith(head)
            and other_text.endswith(tail)
            and len(head + tail) < len(other_text)
        ):
            return other_text[len(head) : len(other_text) - len(tail)]
    return None


def read_nli_tsv(text: str, part: str) -> Iterator[DatasetItem]:
    """Read inference pairs with labels 0, 1, 2."""
    for i, row in _read_table(text, "\t", quoted=False):
        label = _read_field(row, i, "label")
        if label not in ("0", "1", "2"):
            raise BadRowError(i, f"the label is {label!r}")
        pair = (_read_field(row, i, "premise"), _read_field(row, i, "hypothesis"))
        yield TextPair(f"{part}-{i}", *pair, NLI_LABELS[int(label)])


def make_glue_pair_reader(
    first: str, second: str, label: str = "label", *, quoted: bool = False
) -> Callable[[str, str], Iterator[DatasetItem]]:
    """Make a reader of GLUE pairs.

    Args:
        first: column of the first text.
        second: column of the second text.
        label: column of the label.
        quoted: whether fields may be quoted, as in the files of some tasks.
    """

    def read(text: str, part: str) -> Iterator[DatasetItem]:
        for i, row in _read_table(text, "\t", quoted=quoted):
            # Texts may be empty in GLUE, labels may not.
            yield TextPair(f"{part}-{i}", row[first], row[second], _read_field(row, i, label))

    return read


def read_glue_wnli(text: str, part: str) -> Iterator[DatasetItem]:
    """Read WNLI, which has no header."""
    for i, line in enumerate(_split_lines(text)):
        cells = line.split("\t")
        if len(cells) != 3:
            raise BadRowError(i, f"{len(cells)} cells")
        yield TextPair(f"{part}-{i}", *cells)


def read_glue_cola(text: str, part: str) -> Iterator[DatasetItem]:
    """Read CoLA: source, label, mark of the author, sentence."""
    for i, line in enumerate(_split_lines(text)):
        cells = line.split("\t")
        if len(cells) != 4:
            raise BadRowError(i, f"{len(cells)} cells")
        yield LabelledExample(f"{part}-{i}", cells[3], cells[1])


def read_glue_sst2(text: str, part: str) -> Iterator[DatasetItem]:
    """Read SST-2."""
    for i, row in _read_table(text, "\t", quoted=False):
        yield LabelledExample(
            f"{part}-{i}", _read_field(row, i, "sentence"), _read_field(row, i, "label")
        )


def read_wikitext(text: str, part: str) -> Iterator[DatasetItem]:
    """Read WikiText: paragraphs and headings without blank lines, with LF or CRLF."""
    document = ""
    # Blank lines have no id, so that copies with other blank lines give the same ids.
    rows = (line.rstrip("\r") for line in text.split("\n") if line.strip())
    for i, line in enumerate(rows):
        if re.fullmatch(r" = [^=].*[^=] = ", line):
            # Only headings of the first level start a new document.
            document = line.strip(" =")
        yield Sentence(f"{part}-{i}", document, line)


def read_document_sentences(text: str, part: str) -> Iterator[DatasetItem]:
    """Read lines of a document (or number) and a sentence; spaces before signs are removed."""
    for i, line in enumerate(_split_lines(text)):
        document, tab, sentence = line.partition("\t")
        if not tab:
            raise BadRowError(i, "no tab between document and sentence")
        yield Sentence(f"{part}-{i}", document, detokenize(sentence))


def read_text_lines(text: str, part: str) -> Iterator[DatasetItem]:
    """Read one text per line."""
    for i, line in enumerate(_split_lines(text)):
        yield Sentence(f"{part}-{i}", "", line)


def read_counter_stereotypes(text: str, part: str) -> Iterator[DatasetItem]:
    """Read counter-stereotype pairs: a sentence, its counterfactual and their words."""
    keys = ("source", "gender", "attribute", "counterpart", "target", "counter_sentence")
    for i, row in _read_table(text, "\t", quoted=False):
        slots = tuple((key, _read_field(row, i, key)) for key in keys)
        yield Template(f"{part}-{i}", _read_field(row, i, "sentence"), slots)


def read_seat(text: str, part: str) -> Iterator[DatasetItem]:
    """Read a SEAT test: targ1, targ2, attr1, attr2, each with a category and examples."""
    test = _read_json(text)
    word_sets = []
    for role in ("targ1", "targ2", "attr1", "attr2"):
        if role not in test:
            raise BadRowError(0, f"there is no {role}")
        word_sets.append((role, str(test[role]["category"]), tuple(test[role]["examples"])))
    yield WordSets(part, tuple(word_sets))


def read_weat(text: str, part: str) -> Iterator[DatasetItem]:
    """Read the WEAT sets of WEFE, by name."""
    for i, (name, words) in enumerate(_read_json(text).items()):
        if not isinstance(words, list):
            raise BadRowError(i, f"{name!r} is no list of words")
        yield WordSets(name, (("words", name, tuple(words)),))


def read_association_tests(text: str, part: str) -> Iterator[DatasetItem]:
    """Read the tests of Bai et al. 2025: the words of both groups, then words that fit either.

    The first half of the third column fits the first group by stereotype, the second the second.
    """
    columns: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for i, row in _read_table(text, ","):
        name = f"{_read_field(row, i, 'category')}/{_read_field(row, i, 'dataset')}"
        for column in ("A", "B", "C"):
            columns[name][column] += [row[column].strip()] if row[column].strip() else []
    for number, (name, test) in enumerate(columns.items()):
        words = test["C"]
        if len(words) % 2 or not test["A"] or not test["B"]:
            raise BadRowError(number, f"{name} has {len(words)} words, or no groups")
        half = len(words) // 2
        yield WordSets(
            name,
            (
                ("group", "first", tuple(test["A"])),
                ("group", "second", tuple(test["B"])),
                ("words", "first", tuple(words[:half])),
                ("words", "second", tuple(words[half:])),
            ),
        )


def read_gap(text: str, part: str) -> Iterator[DatasetItem]:
    """Read GAP passages."""
    for i, row in _read_table(text, "\t", quoted=False):
        yield GapPassage(
            _read_field(row, i, "ID"),
            _read_field(row, i, "Text"),
            _read_field(row, i, "Pronoun"),
            int(_read_field(row, i, "Pronoun-offset")),
            (_read_field(row, i, "A"), _read_field(row, i, "B")),
            (_read_bool(row, i, "A-coref"), _read_bool(row, i, "B-coref")),
        )


def read_word_lists_json(text: str, part: str) -> Iterator[DatasetItem]:
    """Read a JSON file of word lists as one item: (path, name, words)."""
    word_sets: list[tuple[str, str, tuple[str, ...]]] = []

    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, f"{path}/{key}")
        elif isinstance(value, list):
            if all(isinstance(word, str) for word in value):
                word_sets.append((path.rpartition("/")[0], path.rpartition("/")[2], tuple(value)))
            else:
                for i, inner in enumerate(value):
                    walk(inner, f"{path}/{i}")

    walk(json.loads(text), "")
    yield WordSets(part, tuple(word_sets))


def read_bbq(text: str, part: str) -> Iterator[DatasetItem]:
    """Read a category of BBQ (Parrish et al. 2022), one JSON object per line."""
    for i, row in _read_json_lines(text):
        names = [f"ans{k}" for k in range(3)]
        first, second, third = (_read_field(row, i, name) for name in names)
        # The group of some answers is empty in the published file.
        groups = [str(row["answer_info"][name][1]) for name in names]
        if groups.count("unknown") != 1 or row["label"] not in range(3):
            raise BadRowError(i, f"answers of {groups}, the right one is {row['label']}")
        yield BbqRow(
            f"{_read_field(row, i, 'category')}-{int(row['example_id'])}",
            _read_field(row, i, "question_index"),
            _read_field(row, i, "context_condition"),
            _read_field(row, i, "question_polarity"),
            _read_field(row, i, "context"),
            _read_field(row, i, "question"),
            (first, second, third),
            (groups[0], groups[1], groups[2]),
            tuple(map(str, row["additional_metadata"]["stereotyped_groups"])),
            int(row["label"]),
        )


def read_bbq_targets(text: str, part: str) -> Iterator[DatasetItem]:
    """Read the table of stereotyped answers of BBQ's items; 64 items have two equal rows."""
    for i, row in _read_table(text, ","):
        target = _read_field(row, i, "target_loc")
        name = f"{_read_field(row, i, 'category')}-{int(row['example_id'])}"
        yield BbqTarget(f"{part}-{i}", name, None if target == "NA" else int(target))


def read_unqover_lists(text: str, part: str) -> Iterator[DatasetItem]:
    """Read names or statements of UnQover (Li et al. 2020): a slot, perhaps a class, and a text."""
    number = 0
    for i, line in enumerate(_split_lines(text)):
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r"\[([\w:-]+)\]([^|]*\|)?(.*)", line)
        if match is None or not match[3].strip():
            raise BadRowError(i, f"{line!r:.60} has no slot or no text")
        kind = (match[2] or "").removesuffix("|").strip()
        slots = (("slot", match[1]), ("class", kind))
        yield Template(f"{part}-{number}", match[3].strip(), slots)
        number += 1


def read_unqover_templates(text: str, part: str) -> Iterator[DatasetItem]:
    """Read contexts of UnQover, each with a question and the negated question.

    Versions of a context, such as with men and with women, follow each other without an empty line.
    """
    number, cluster, is_new = 0, 0, False
    for i, line in enumerate(_split_lines(text)):
        if not line.strip():
            is_new = number > 0
            continue
        cluster, is_new = cluster + is_new, False
        cells = line.split("\t")
        if len(cells) != 3:
            raise BadRowError(i, f"{len(cells)} cells, not a context and two questions")
        slots = (("question", cells[1]), ("negated", cells[2]), ("cluster", str(cluster)))
        yield Template(f"{part}-{number}", cells[0], slots)
        number += 1


def read_bold(text: str, part: str) -> Iterator[DatasetItem]:
    """Read BOLD: groups, the articles about each, and the texts from each article."""
    number = 0
    for group, articles in _read_json(text).items():
        for article, texts in articles.items():
            if not isinstance(texts, list):
                raise BadRowError(number, f"{article!r} has no list of texts")
            for row in texts:
                slots = (("group", group), ("article", article))
                yield Template(f"{part}-{number}", str(row), slots)
                number += 1


def read_honest(text: str, part: str) -> Iterator[DatasetItem]:
    """Read HONEST: a sentence with the blank [M], the word for a person, and the template."""
    columns = ("identity", "category", "number", "type")
    for i, row in _read_table(text, "\t", quoted=False):
        slots = tuple((name, _read_field(row, i, name)) for name in columns)
        template = ("template", _read_field(row, i, "raw"))
        yield Template(f"{part}-{i}", _read_field(row, i, "template_masked"), (*slots, template))


def read_hurtlex(text: str, part: str) -> Iterator[DatasetItem]:
    """Read HurtLex: offensive words, each with its kind and how surely it is offensive."""
    columns = ("pos", "category", "stereotype", "level")
    for i, row in _read_table(text, "\t", quoted=False):
        slots = tuple((name, _read_field(row, i, name)) for name in columns)
        yield Template(f"{part}-{i}", _read_field(row, i, "lemma"), slots)


def read_identity_attributes(text: str, part: str) -> Iterator[DatasetItem]:
    """SeeGULL: an attribute, and slots for the identity and how many of three raters know it."""
    for i, row in _read_table(text, ","):
        # Some identities end in a comma.
        identity = _read_field(row, i, "identity").strip(" ,")
        raters = _read_field(row, i, "stereotype" if "stereotype" in row else "region_stereo")
        slots = (("identity", identity), ("raters", raters))
        yield Template(f"{part}-{i}", _read_field(row, i, "attribute"), slots)


READERS: dict[str, Callable[[str, str], Iterator[DatasetItem]]] = {
    "stereoset": read_stereoset,
    "twins": read_twin_triples,
    "crows": read_crows_pairs,
    "crows-translated": read_translated_crows_pairs,
    "winobias": read_winobias,
    "winogender": read_winogender,
    "winogender_statistics": read_winogender_statistics,
    "bec": read_bec_pro,
    "nli_templates": read_nli_templates,
    "nli_coal": read_nli_coal,
    "nli_tsv": read_nli_tsv,
    "glue_rte": make_glue_pair_reader("sentence1", "sentence2", quoted=True),
    "glue_mrpc": make_glue_pair_reader("sentence1", "sentence2", quoted=True),
    "glue_qnli": make_glue_pair_reader("question", "sentence"),
    "glue_qqp": make_glue_pair_reader("question1", "question2", quoted=True),
    "glue_stsb": make_glue_pair_reader("sentence1", "sentence2", "score"),
    "glue_wnli": read_glue_wnli,
    "glue_cola": read_glue_cola,
    "glue_sst2": read_glue_sst2,
    "wikitext": read_wikitext,
    "sentences": read_document_sentences,
    "lines": read_text_lines,
    "counter": read_counter_stereotypes,
    "seat": read_seat,
    "weat": read_weat,
    "association_tests": read_association_tests,
    "gap": read_gap,
    "json": read_word_lists_json,
    "bbq": read_bbq,
    "bbq_targets": read_bbq_targets,
    "unqover_lists": read_unqover_lists,
    "unqover_templates": read_unqover_templates,
    "bold": read_bold,
    "honest": read_honest,
    "hurtlex": read_hurtlex,
    "identity_attributes": read_identity_attributes,
}


def read_items(reader: str, text: str, part: str) -> Iterator[DatasetItem]:
    """Yield the items of a text; raise `BadRowError` if it does not fit the format.

    Args:
        reader: name of the reader.
        text: text of the file.
        part: name of the part, which starts the ids.
    """
    count = 0
    try:
        for item in READERS[reader](text, part):
            count += 1
            yield item
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, csv.Error) as error:
        # The file lacks a column, or a value has another type or shape than the format requires.
        raise BadRowError(count, f"{type(error).__name__}: {error}") from None


def detokenize(text: str) -> str:
    """Join signs that tokenization separated by spaces, as in ordinary text.

    >>> detokenize("Do n't go , he said ( twice ) .")
    "Don't go, he said (twice)."
    """
    text = re.sub(r"(\w) (n['\u2019]t)\b", r"\1\2", text)
    text = re.sub(r" ([.,;:!?)\]%\u2019\u201d])", r"\1", text)
    text = re.sub(r"([(\[\u201c\u2018$]) ", r"\1", text)
    return re.sub(r" (['\u2019](?:s|ll|d|re|ve|m)\b)", r"\1", text)


def _split_lines(text: str) -> list[str]:
    """Split at line feeds only; a last empty line does not count."""
    parts = text.split("\n")
    # Not splitlines(): it also splits at U+2028 and form feeds inside texts.
    return [line.removesuffix("\r") for line in (parts[:-1] if parts[-1] == "" else parts)]


def _read_table(
    text: str, separator: str, *, quoted: bool = True
) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.reader(
        io.StringIO(text, newline="") if quoted else _split_lines(text),
        delimiter=separator,
        # Unquoted TSV files contain single quotation marks that must not open a field.
        quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
    )
    header = next(reader, None)
    if header is None:
        raise BadRowError(0, "the file is empty")
    # A byte order mark would become part of the first column name.
    header[0] = header[0].removeprefix("\ufeff")
    for i, cells in enumerate(reader):
        # A stray separator would shift the values of all later columns.
        if len(cells) != len(header):
            raise BadRowError(i, f"{len(cells)} cells under {len(header)} headings")
        yield i, dict(zip(header, cells, strict=True))


def _read_json_lines(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for i, line in enumerate(_split_lines(text)):
        try:
            yield i, json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadRowError(i, f"no JSON: {error}") from None


def _read_json(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRowError(0, f"no JSON: {error}") from None
    if not isinstance(content, dict):
        raise BadRowError(0, "no JSON object")
    return content


def _read_bool(row: dict[str, Any], i: int, name: str) -> bool:
    value = _read_field(row, i, name).upper()
    if value not in ("TRUE", "FALSE"):
        raise BadRowError(i, f"{name!r} is {value!r}")
    return value == "TRUE"


def _read_field(row: dict[str, Any], i: int, name: str) -> str:
    value = row.get(name)
    # The first column of CrowS-Pairs has an empty name, which is allowed.
    if not isinstance(value, str) or (value == "" and name):
        raise BadRowError(i, f"{name!r} is missing or empty")
    return value
