"""A small case of every metric: real items in the words of the tiny models."""

import dataclasses
import functools
import itertools
import tempfile
from pathlib import Path

import zoo

from levelhead.core.run_context import Inference
from levelhead.data.lexicons.lexicon import Lexicon, Side, TargetFamily, Term
from levelhead.data.lexicons.published import GroupTemplate
from levelhead.data.prompts.associations import AssociationTest
from levelhead.data.prompts.bbq import AMBIGUOUS, DISAMBIGUATED, BbqQuestion
from levelhead.data.prompts.counteracts import CounteractsPrompt
from levelhead.data.prompts.decisions import ApplicantName, Scenario
from levelhead.data.prompts.facts import FactQuestion
from levelhead.data.prompts.group_prompts import GroupPrompt
from levelhead.data.prompts.instructions import Instruction
from levelhead.data.prompts.pronoun_agreement import AgreementSentence
from levelhead.data.prompts.pronoun_twins import TYPE_1, TYPE_2, PronounTwins
from levelhead.data.prompts.unqover import UnderspecifiedQuestion
from levelhead.data.records import LabelledExample, MinimalPair, StereoSetItem, TextPair, TwinTriple
from levelhead.measures.generation.scoring.scorers import TextScorer
from levelhead.measures.registry import make_measure, metric_texts
from levelhead.models.loading.load import load

INFERENCE = Inference(seed=1, resamples=199, permutations=199)
FAST = Inference(seed=1, resamples=99, permutations=99)
"""Where no digit of an interval or a p-value is compared."""
THINGS = ("nurse", "doctor", "house", "river", "quick", "lazy", "tired", "here", "there", "in")
FEMALE, MALE = ("she", "woman"), ("he", "man")

WORDS = Lexicon(
    name="tiny",
    language="en",
    groups=("female", "male"),
    source="the tests",
    licence="CC0-1.0",
    limits="says nothing of anybody",
    sha256="ab" * 32,
    terms=(
        Term("pronoun", (("female", "she"), ("male", "he")), role="subject"),
        Term("person", (("female", "woman"), ("male", "man"))),
    ),
    placebos=(("female", (("woman", "nurse"),)), ("male", (("man", "doctor"),))),
    families=(
        TargetFamily(
            "things", "", (Side("a", "female", THINGS[:5]), Side("b", "male", THINGS[5:]))
        ),
    ),
)


def triples(count=12, word="the"):
    """Triples; another word at their start gives others."""
    result = []
    for i, (a, b) in enumerate(itertools.islice(itertools.permutations(THINGS, 2), count)):
        old, new = ("woman", "man") if i % 2 else ("man", "woman")
        pronoun = {"man": "he", "woman": "she"}
        result.append(
            TwinTriple(
                f"t{i}",
                "F" if i % 2 else "M",
                f"{word} {old} is {a}.",
                f"{pronoun[old]} was {a}.",
                f"{pronoun[old]} was {b}.",
                f"the {b} is a {a}.",
                f"{word} {new} is {a}.",
                f"{pronoun[new]} was {a}.",
                f"{pronoun[new]} was {b}.",
                f"the {b} is a {a}.",
            )
        )
    return tuple(result)


def pairs(count=12, word="the"):
    return tuple(
        MinimalPair(
            f"p{i}", ("gender", "age")[i % 2], "stereo", f"{word} woman is {a} {b}.",
            f"{word} man is {a} {b}.",
        )
        for i, (a, b) in enumerate(itertools.islice(itertools.permutations(THINGS, 2), count))
    )  # fmt: skip


def associations(word="the"):
    """Four target terms of unequal numbers of items, endings within the sentence."""
    context = f"{word} BLANK is {{}}."
    rows = itertools.islice(itertools.permutations(THINGS, 3), 0, 600, 25)
    return tuple(
        StereoSetItem(
            f"a{i}", "intrasentence", ("gender", "race")[i % 2], ("w", "x", "y", "z")[i % 7 % 4],
            context.format(a), *(f"{word} {ending} is {a}." for ending in (b, c, "woman")),
        )
        for i, (a, b, c) in enumerate(rows)
    )  # fmt: skip


def prompts(word="the"):
    result = []
    for i, thing in enumerate(THINGS):
        group = "female" if i % 2 else "male"
        base = f"{word} [MASK] works as a {thing}."
        for kind, background, knowledge in (
            ("base", "", ""),
            ("unrelated", "", "the house is here."),
            ("background", THINGS[i - 1], f"the man was a {THINGS[i - 1]}."),
            ("background", THINGS[i - 2], f"the man was a {THINGS[i - 2]}."),
        ):
            name = "/".join(filter(None, (thing, kind, background)))
            result.append(CounteractsPrompt(name, thing, group, kind, background, knowledge, base))
    return tuple(result)


def sentences(word="the"):
    return tuple(f"{word} {a} said that {b} was {c}." for a, b, c in zip(
        THINGS, THINGS[3:] + THINGS[:3], THINGS[5:] + THINGS[:5], strict=True
    ))  # fmt: skip


def templates(word="the"):
    """One with the group first, one with the target first."""
    pronouns = (("male", ("he",)), ("female", ("she",)))
    people = (("male", ("man", "he")), ("female", ("woman",)))
    return (
        GroupTemplate(f"GGG is {word} XXX.", pronouns),
        GroupTemplate(f"{word} XXX is a GGG.", people),
    )


NLI = ("contradiction", "entailment", "neutral")
"""The classes of the tiny classifier: not in the usual order."""


def nli_pairs(word="the"):
    """Pairs of an occupation's sentence and a gendered word's."""
    return tuple(
        TextPair(f"{thing}/{t}/{who}", f"{word} {thing} {rest}", f"{word} {who} {rest}", NLI[i % 3])
        for i, thing in enumerate(THINGS)
        for t, rest in enumerate(("is here.", "was in the house."))
        for who in FEMALE + MALE
    )


def neutral(word="the"):
    """The same, labelled as they are."""
    return tuple(pair._replace(label="neutral") for pair in nli_pairs(word))


def coal(word="the"):
    """The same with a stereotype for some of the things, ids with their part."""
    result = []
    for pair in neutral(word):
        thing, _, who = pair.id.split("/")
        if THINGS.index(thing) % 3 == 2:
            part = "non"
        else:
            part = "pro" if (who in FEMALE) == (THINGS.index(thing) % 3 == 0) else "anti"
        result.append(pair._replace(id=f"{part}/{pair.id}"))
    return tuple(result)


def labelled(word="the"):
    """Texts that speak of a woman or a man, each with a class."""
    rows = itertools.product(THINGS, ("woman", "man"), ("here", "tired"))
    return tuple(
        LabelledExample(f"l{i}", f"{word} {who} is {thing} and {end}.", NLI[i % 7 % 3])
        for i, (thing, who, end) in enumerate(rows)
    )


def agreeing(word="the"):
    """Sentences whose pronoun agrees with a woman or a man, of either in turn."""
    result = []
    for i, thing in enumerate(THINGS):
        for group, who, subset, other in (
            ("female", "woman", "she", "he"),
            ("male", "man", "he", "she"),
        ):
            text = f"{word} {who} said that {subset} was {thing}."
            start = text.index(f" {subset} ") + 1
            span = (start, start + len(subset))
            source = "ab"[i % 2]
            result.append(
                AgreementSentence(f"g{i} {group}", source, text, span, other, group, thing)
            )
    return tuple(result)


def questions(word="the"):
    """Questions about a man and a woman, six of a thing: two contexts do not give the answer."""
    result = []
    for i, thing in enumerate(THINGS):
        people = ("the man", "the woman")[:: 1 if i % 2 else -1]
        nobody = f"{THINGS[i - 3]} {'in ' * (i % 3)}{thing}"  # some are longer, and so less likely
        for negative, right in itertools.product((True, False), (0, 1, 2)):
            answers = (*(people if negative else people[::-1]), nobody)
            rest = "" if right == 2 else f" {answers[right]} was in the house."
            result.append(
                BbqQuestion(
                    f"q{i}-{negative}-{right}", ("a", "b")[i % 2], thing,
                    AMBIGUOUS if right == 2 else DISAMBIGUATED, negative,
                    f"{word} man and the woman was {thing}.{rest}",
                    f"that was {'tired' if negative else 'quick'} {thing}.", answers, right,
                    (i % 3, (i + 1) % 3, (i + 2) % 3),
                )
            )  # fmt: skip
    return tuple(result)


@dataclasses.dataclass(frozen=True)
class SaysThe(TextScorer):
    """Texts with the word "the"."""

    name, label, version = "says the", "with the word", "1"

    def label_texts(self, texts):
        return ["the" in text.split() for text in texts]


def twins(word="the"):
    """Sentences with a pronoun and two things, one of women and one of men, either first."""
    result = []
    for i, (a, b) in enumerate(itertools.product(THINGS[:5], THINGS[5:])):
        for place in (0, 1):
            right = i % 2
            people = (f"the {a}", f"the {b}")
            first, second = people if place == right else people[::-1]
            text = f"{word} man and {first} said that {second} was quick and {{}} was tired."
            result.append(
                PronounTwins(
                    f"w{i}-{place}", (TYPE_1, TYPE_2)[i % 2],
                    (text.format("she"), text.format("he")), ("she", "he"), people, right, (a, b),
                )
            )  # fmt: skip
    return tuple(result)


def scenarios(word="the"):
    """Decisions about a thing, with a fact for it and one against."""
    return tuple(
        Scenario(
            thing, f"{word} {thing} and the doctor was in the house.", f"the {thing}",
            f"the {thing} works here.", f"the {thing} is here.",
            f"the {thing} was quick.", f"the {thing} was lazy.",
        )
        for thing in THINGS
    )  # fmt: skip


def names(word="the"):
    """Names of things, half of a group."""
    return tuple(
        ApplicantName(f"{word} {('woman', 'man')[i % 2]} {thing}", ("x", "y")[i % 2], "women")
        for i, thing in enumerate(THINGS)
    )


def association_tests(word="the"):
    """Two tests of groups and things; `word` is in every word."""
    return tuple(
        AssociationTest(
            f"x/{i}", ("woman", "she"), ("man", "he"),
            tuple(f"{word} {thing}" for thing in THINGS[:5]),
            tuple(f"{word} {thing}" for thing in THINGS[5:]),
        )
        for i in range(2)
    )  # fmt: skip


def underspecified(word="the"):
    """Questions about two people for every thing, in two contexts; some things are of women."""
    return tuple(
        UnderspecifiedQuestion(
            f"u{i}-{number}", f"context {number}", thing, ("female", "male")[i % 2], context,
            f"that is {thing} .", f"that was {thing} .", f"{{subject}} is {thing} .",
            f"{{subject}} was {thing} .", (("she", "he"), ("woman", "man")),
        )
        for i, thing in enumerate(THINGS)
        for number, context in enumerate(
            f"{word} {{first}} {middle} {{second}} ."
            for middle in ("and", "is in", "said that", "was")
        )
    )  # fmt: skip


def group_prompts(word="the"):
    """Beginnings of sentences about a woman or a man and a thing, with a text that goes on."""
    return tuple(
        GroupPrompt(
            f"{group} {thing}", group, f"{group} {thing}", f"{word} {who} said that {thing} is",
            f"in {'the' if (i + (who == 'man')) % 3 else 'a'} {thing}",
        )
        for group, who in (("female", "woman"), ("male", "man"))
        for i, thing in enumerate(THINGS)
    )  # fmt: skip


def facts(word="the"):
    """Questions about things, with three answers."""
    return tuple(
        FactQuestion(f"{word} {thing} is in", "ab"[i % 2], tuple(THINGS[i - k] for k in (1, 2, 3)))
        for i, thing in enumerate(THINGS)
    )


def instructions(word="the"):
    """Requests about things; any answer follows the first of them, and none the second."""
    checks = (("words", "1-99"), ("equals", "?"))
    return tuple(
        Instruction(thing, thing, f"{word} {thing} is here", *checks[i % 2])
        for i, thing in enumerate(THINGS)
    )


_folder = tempfile.TemporaryDirectory(prefix="measures-")


@functools.cache
def corpus(word="the"):
    """Sentences with every thing and every group's words, none of them first."""
    rows = [f"{word} {a} is {b}." for a, b in itertools.permutations(THINGS, 2)]
    rows += [f"{word} {who} said that {a} was there." for who in FEMALE + MALE for a in THINGS]
    path = Path(_folder.name) / f"{len(word)}.txt"
    path.write_text("\n".join(rows))
    return str(path)


OWN = (
    *("triples", "pairs", "prompts", "texts", "associations", "templates", "questions", "twins"),
    *("scenarios", "names", "tests", "occupations", "instructions"),
)
"""Options that hold items."""
DEV = (
    *("nli_fairness", "nli_accuracy", "nli_parity", "nli_parity_majority", "nli_gap"),
    *("net_neutral", "fraction_neutral", "threshold_neutral"),
)
COAL = ("nli_coal", "nli_coal_probability")
SNLI = ("snli", "snli_likelihood")
TASK = ("task", "task_likelihood")
ACCURACY = ("accuracy", "accuracy_likelihood")
PRONOUNS = ("pronoun_agreement", "pronoun_agreement_margin")
DEFINITIONS = ("definitional_gender", "definitional_gender_margin")
STEREOSET = ("stereotype_score", "stereotype_margin", "lms", "lms_margin", "icat")
SWAPPED = ("counterfactual", "counterfactual_shift")
BBQ = (
    *("bbq", "bbq_disambiguated", "bbq_s_amb", "bbq_s_dis", "bbq_accuracy", "bbq_likelihood"),
    *("bbq_unknown", "bbq_unknown_likelihood"),
)
GENERATED = (*("generation", "generation_refusals", "generation_failures", "generation_length"),)
PERSONA = ("persona", "persona_marked", "persona_refusals", "persona_failures")
BOLD = ("bold", "bold_excess", "bold_refusals", "bold_failures", "bold_length")
HONEST = ("honest", "honest_score", "honest_refusals", "honest_failures")
WINOBIAS = ("winobias", "winobias_gap", "winobias_accuracy", "winobias_likelihood")
CALLBACK = ("callback", "callback_impact_ratio")
UNQOVER = (
    *("unqover", "unqover_score", "unqover_count", "unqover_position_error"),
    "unqover_attribute_error",
)
RELATIVE = ("relative_decision", "relative_decision_share")
FACTS = ("facts", "facts_likelihood")
IMPLICIT = ("implicit_association", "implicit_association_d")
DECISION_TABLES = ("decision_spread", "decision_gap", "decision_variance", "decision_interaction")
ASSOCIATION_TABLES = (
    "association_spread",
    "association_gap",
    "association_variance",
    "association_interaction",
)
DECISIONS = (
    *(*BBQ, *WINOBIAS, "decision", *CALLBACK, *IMPLICIT, *UNQOVER, *RELATIVE, *FACTS),
    *DECISION_TABLES,
)
PACE = dataclasses.replace(
    WORDS,
    name="pace",
    groups=("quick", "lazy"),
    sha256="cd" * 32,
    terms=(Term("adjective", (("quick", "quick"), ("lazy", "lazy"))),),
    placebos=(),
)
CROSSED = {"lexicon": WORDS, "crossed_with": PACE}
CALLBACK_OPTIONS = {
    "answer_start": "here",
    "groups": ("x", "y"),
    "jobs": ("woman", "man"),
    "answers": ("here", "there"),
    "decisions": ("quick", "lazy"),
    "request": "{name} works as a {job} . {fact} {decision} {first} and {second} .",
    "facts": ("{name} was quick .", "{name} was lazy ."),
}
WINOBIAS_REQUEST = "{sentence} {pronoun} was {first} and {second}."
BBQ_REQUEST = "{context} {question}\n{options}"
PLAIN = {"answer_start": "here", "listing": "lines"}
"""Requests in the words of the tiny models."""
CLASSIFIED = (*DEV, *COAL, *SNLI, *TASK, *ACCURACY, *SWAPPED)


def person_templates(word="the"):
    """Sentences about a person, which differ in one word."""
    return tuple(f"{word} {{person}} was {thing} and is [MASK]" for thing in THINGS)


def made(name, *, empty=False, word="the", **options):
    """The measure that reports a metric, on the tiny data; `word` stands in every text."""
    given = {
        "seat": {"lexicon": WORDS, "targets": "things", "corpus": corpus(word)},
        "strength": {"triples": triples(word=word), "top": 0.3},
        "distance": {"triples": triples(word=word), "top": 0.3, "lexicon": WORDS},
        "contrast": {"triples": triples(word=word), "top": 0.3},
        "crows": {"pairs": pairs(word=word)},
        "crows_margin": {"pairs": pairs(word=word)},
        "cloze": {"prompts": prompts(word), "lexicon": WORDS},
        "cloze_probability": {"prompts": prompts(word), "lexicon": WORDS},
        "cloze_relative": {"prompts": prompts(word), "lexicon": WORDS},
        "cloze_top": {"prompts": prompts(word), "lexicon": WORDS},
        "group_preference": {"prompts": prompts(word), "lexicon": WORDS},
        **{name: {"pairs": neutral(word), "labels": NLI, "lexicon": WORDS} for name in DEV},
        **{name: {"pairs": coal(word), "labels": NLI} for name in COAL},
        **{name: {"pairs": nli_pairs(word), "labels": NLI} for name in SNLI},
        **{name: {"texts": nli_pairs(word), "labels": NLI} for name in TASK},
        **{name: {"texts": labelled(word), "labels": NLI} for name in ACCURACY},
        **{name: {"texts": labelled(word), "labels": NLI, "lexicon": WORDS} for name in SWAPPED},
        "continuation": {
            "prompts": prompts(),
            "template": f"{word} {{occupation}} said that",
            "lexicon": WORDS,
            "k": 8,
            "tokens": 4,
        },
        **{
            name: {
                "occupations": THINGS,
                "requests": (f"{word} {{a}} {{person}} works as {{occupation}}",),
                "persons": ("woman", "man"),
                "lexicon": WORDS,
                "scorer": SaysThe(),
                "refusal_phrases": ("a", "is"),
                "k": 4,
                "tokens": 4,
                "temperature": 1.0,
            }
            for name in GENERATED
        },
        **{
            name: {
                "occupations": THINGS,
                "requests": (f"{word} {{a}} {{person}} works as {{occupation}}",),
                "persons": ("woman", "man"),
                "lexicon": WORDS,
                "words": (THINGS[:5], THINGS[5:]),
                "refusal_phrases": ("a", "is"),
                "k": 4,
                "tokens": 4,
                "temperature": 1.0,
            }
            for name in PERSONA
        },
        **{
            name: {
                "prompts": group_prompts(word),
                "groups": ("female", "male"),
                "scorer": SaysThe(),
                "refusal_phrases": ("a", "is"),
                "k": 4,
                "tokens": 4,
            }
            for name in BOLD
        },
        **{
            name: {
                "prompts": group_prompts(word),
                "groups": ("female", "male"),
                "scorer": SaysThe(),
                "refusal_phrases": ("a", "is"),
                "first_words": 3,
                "k": 4,
                "tokens": 4,
            }
            for name in HONEST
        },
        "lpbs": {"targets": WORDS.families[0], "templates": templates(word)},
        **{name: {"associations": associations(word)} for name in STEREOSET},
        **{name: {"texts": agreeing(word), "lexicon": WORDS} for name in (*PRONOUNS, *DEFINITIONS)},
        **{name: {"questions": questions(word), **PLAIN, "request": BBQ_REQUEST} for name in BBQ},
        **{
            name: {"twins": twins(word), "answer_start": "here", "request": WINOBIAS_REQUEST}
            for name in WINOBIAS
        },
        "decision": {
            "scenarios": scenarios(word),
            "lexicon": WORDS,
            "answer_start": "here",
            "answers": ("here", "there"),
            "request": "{scenario} {question} {first} and {second} .",
        },
        **{
            name: {
                "scenarios": scenarios(word),
                **CROSSED,
                "answer_start": "here",
                "answers": ("here", "there"),
                "request": "{scenario} {question} {first} and {second} .",
            }
            for name in DECISION_TABLES
        },
        **{
            name: {"templates": person_templates(word), "targets": WORDS.families[0], **CROSSED}
            for name in ASSOCIATION_TABLES
        },
        **{name: {"names": names(word), **CALLBACK_OPTIONS} for name in CALLBACK},
        **{
            name: {
                "tests": association_tests(word),
                "answer_start": "",
                "neutral": "in",
                "request": "{first} and {second} said that {word}",
            }
            for name in IMPLICIT
        },
        **{
            name: {
                "tests": association_tests(word),
                "answer_start": "",
                "request": "{first} and {second} said that {one} and {other} . {topic}",
            }
            for name in RELATIVE
        },
        **{
            name: {
                "questions": underspecified(word),
                "answer_start": "",
                "request": "{context} {question} {first} and {second} said that",
            }
            for name in UNQOVER
        },
        **{
            name: {"questions": facts(word), "answer_start": "", "request": "{question} {options}"}
            for name in FACTS
        },
        "instructions": {"instructions": instructions(word), "tokens": 4},
        "pppl": {"texts": sentences(word), "limit": None},
        "ppl": {"texts": sentences(word), "limit": None},
    }[name]
    if empty:
        given |= {key: () for key in OWN if key in given}
        if name == "seat":
            path = Path(corpus(word)).with_suffix(".empty.txt")
            path.write_text("nothing is said here")
            given |= {"corpus": str(path)}
    row = metric_texts()[name].partition(":")[0]
    return make_measure(row, **({"metric": name} | given | options))


CASES = (
    *("seat", "strength", "distance", "contrast", "crows", "crows_margin", "cloze"),
    *("cloze_probability", "cloze_relative", "cloze_top", "group_preference", "pppl", "ppl"),
    *CLASSIFIED,
    *STEREOSET,
    *PRONOUNS,
    *DEFINITIONS,
    *DECISIONS,
    *ASSOCIATION_TABLES,
    *GENERATED,
    *PERSONA,
    *BOLD,
    *HONEST,
    "lpbs",
    "continuation",
    "instructions",
)
"""Every metric has a case; a test compares."""

CAUSAL = ("ppl", "continuation", "instructions", *DECISIONS, *GENERATED, *PERSONA, *BOLD, *HONEST)
CLASSES_SEED = 3
"""Of a random classifier that does not call all items the same."""


@functools.cache
def checkpoint(name):
    if name in CAUSAL:
        return zoo.folder("llama", "LlamaForCausalLM")
    if name in CLASSIFIED:
        return zoo.folder("bert", "BertForSequenceClassification", num_labels=3, seed=CLASSES_SEED)
    return zoo.folder("bert", "BertForPreTraining")


def model(name, **options):
    """A tiny model that can answer a measure."""
    return load(checkpoint(name), **options)


def headless(name):
    """A model without the head a measure needs; None if it needs none."""
    if name == "seat":
        return None
    if name in HONEST:
        return load(zoo.folder("bert", "BertModel"))
    if name in CAUSAL:
        return load(zoo.folder("bert", "BertForMaskedLM"))
    if name in ("strength", "distance", *CLASSIFIED):
        return load(zoo.folder("bert", "BertForMaskedLM"))
    if name == "pppl":
        return load(zoo.folder("llama", "LlamaForCausalLM"))
    return load(zoo.folder("bert", "BertModel"))
