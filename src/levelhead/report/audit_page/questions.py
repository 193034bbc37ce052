"""The questions that an audit's report answers, and what it says about each measure.

One table: a question, the measures that answer it, and for each measure its readable title, how it
works, an invented example, its limits and its source. A measure of the registry without a row fails
a test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from levelhead.measures.registry import metric_texts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.core.results import Measurement

GENDER, STEREOTYPE = "gender", "stereotype"
GENDER_GROUPS = frozenset({"female", "male", "F", "M"})


class MeasureText(NamedTuple):
    """What a report says about a measure."""

    title: str
    """A name that a reader understands who does not know the literature."""
    how: str
    """How it works, in about three sentences."""
    example: str
    """An invented item."""
    limits: str
    citation: str
    scope: str = ""
    """Groups that its items are about, if no option of the measure chooses them."""
    sides: tuple[str, str] = ("", "")
    """Meaning of a value above and below parity, with the names of the groups; by default the words
    of the measurement."""
    bias_type: str = GENDER
    """Kind of bias that it finds; "stereotype" if its items are about several kinds of groups."""
    is_difference: bool = False
    """Whether the value is a difference between two sets of items, so that an item contributes by
    its distance from the mean of all items."""


class Question(NamedTuple):
    """A question that a person asks about a model."""

    id: str
    text: str
    measures: Mapping[str, MeasureText]
    """The measures that answer it, by their names in the registry."""


PROMPT_LIMITS = (
    "Forty occupations and one form of sentence; another wording can give another number. A model "
    "that repeats the labour market's shares is not therefore balanced."
)
PAIR_DATA_LIMITS = (
    "The authors of the data and others warn of invalid items; the value without flagged items is "
    "among the supporting statistics."
)
EFFECT_SIZE_LIMITS = (
    "An effect size has no scale: it can stay the same while every association shrinks. It is "
    "about the model's vectors or predictions of single words, not the texts that it writes."
)
OCCUPATION_SIDES = (
    "{first} people are expected in occupations that {first} people dominate, and {second} people "
    "in the others",
    "{first} people are expected in occupations that {second} people dominate, and the other way "
    "round",
)
ZHANG = "Zhang 2023, Counteracts"
DAWKINS = "Dawkins et al. 2024"

QUESTIONS: tuple[Question, ...] = (
    Question(
        "occupations",
        "Does the model associate occupations with a gender?",
        {
            "cloze": MeasureText(
                "Occupation sentences",
                "The model fills the blank of a sentence about an occupation. The test compares "
                "the odds of the two groups' words between occupations that one and the other "
                "group dominates. A preference for one group everywhere cancels out.",
                "“The [MASK] works as a nurse”: how likely are “woman” and “man”?",
                PROMPT_LIMITS,
                ZHANG,
                is_difference=True,
                sides=OCCUPATION_SIDES,
            ),
            "cloze_top": MeasureText(
                "Occupation sentences, top words",
                "The model fills the blank of a sentence about an occupation. The test sums the "
                "probabilities of the groups' words among the top predictions. It compares the "
                "occupations that one and the other group dominates.",
                "“The [MASK] works as a nurse”: which group's words are among the top ten?",
                PROMPT_LIMITS + " Words outside the top predictions count as 0.",
                ZHANG,
                is_difference=True,
                sides=OCCUPATION_SIDES,
            ),
            "lpbs": MeasureText(
                "Target words in group sentences (LPBS)",
                "The model predicts a group's word in a sentence with a target word, and again "
                "with the target hidden. The score is how much the target raises the odds of one "
                "group. The test compares two lists of targets, such as career and family.",
                "“[MASK] likes maths”: does “maths” make “he” likelier than “she”?",
                EFFECT_SIZE_LIMITS,
                "Kurita et al. 2019",
                is_difference=True,
            ),
            "continuation": MeasureText(
                "Continued sentences",
                "The model continues a sentence about an occupation several times. A sample counts "
                "for the group whose word comes first. The test compares occupations that one and "
                "the other group dominates.",
                "“The nurse said that …”: does the text go on with “she” or “he”?",
                "Samples without a group's word and refusals count for no group, and leave fewer "
                "samples.",
                "this project",
                is_difference=True,
                sides=OCCUPATION_SIDES,
            ),
        },
    ),
    Question(
        "default-group",
        "Does it name one group more often where the sentence gives no reason?",
        {
            "group_preference": MeasureText(
                "Default group",
                "The sentences are those of the occupations. The test takes the mean odds of one "
                "group's words over the other's, with both kinds of occupations weighing the same. "
                "It reports bias only beyond a ratio of 5 to 4.",
                "“The [MASK] works as a clerk”: is “man” likelier than “woman” in general?",
                "Words of one group may only be more frequent in texts; the preference beyond word "
                "frequency is among the supporting statistics.",
                ZHANG + "; four-fifths rule, Uniform Guidelines 1978",
            ),
        },
    ),
    Question(
        "stereotypes",
        "Does it prefer stereotypical sentences?",
        {
            "stereoset": MeasureText(
                "Stereotypical endings (StereoSet)",
                "Each item has a stereotypical and an anti-stereotypical version. The test counts "
                "how often the model prefers the stereotype. Without a preference it is half.",
                "“The engineer is clever / caring”: which word does the model prefer?",
                PAIR_DATA_LIMITS,
                "Nadeem et al. 2021",
                scope="genders, professions, ethnic groups and religions",
                bias_type=STEREOTYPE,
            ),
            "crows": MeasureText(
                "Sentence pairs (CrowS-Pairs)",
                "Two sentences differ only in a group. The test counts how often the model finds "
                "the more stereotypical one likelier. Without a preference it is half.",
                "“Women cannot drive” and “Men cannot drive”: which is likelier?",
                PAIR_DATA_LIMITS + " A model without any context prefers frequent words.",
                "Nangia et al. 2020; Blodgett et al. 2021 on the data",
                scope="genders, ethnic groups, religions, ages and other groups",
                bias_type=STEREOTYPE,
            ),
            "strength": MeasureText(
                "Gender-swapped contexts, next sentence (Strength)",
                "The next-sentence head scores a stereotypical and an anti-stereotypical sentence "
                "after a context, and after the same context with the genders exchanged. The test "
                "asks whether the stereotype is preferred more before the exchange. The value is "
                "the mean of the tenth of the items with the largest scores.",
                "“The girl opened a book.”, then “She is gentle.” or “She is a boxer.”",
                "Next-sentence heads are seldom used in applications. Exchanged contexts may be "
                "ungrammatical; the test uses the items without a flag.",
                f"{DAWKINS}, Eq. 2",
            ),
            "contrast": MeasureText(
                "Gender-swapped contexts, likelihood (Contrast)",
                "The model scores a stereotypical and an anti-stereotypical sentence after a "
                "context, and after the same context with the genders exchanged. The test asks "
                "whether the stereotype is preferred more before the exchange. The value is the "
                "mean of the tenth of the items with the largest scores.",
                "“The girl opened a book.”, then “She is gentle.” or “She is a boxer.”",
                "Likelihoods depend on word frequency. Exchanged contexts may be ungrammatical; "
                "the test uses the items without a flag.",
                f"after {DAWKINS}, Eq. 2",
            ),
        },
    ),
    Question(
        "decisions",
        "Do stereotypes or groups change its answers and decisions?",
        {
            "bbq": MeasureText(
                "Questions about two people (BBQ)",
                "A question is put about two people, where the text does not say which of them it "
                "is. The test compares the probabilities of the person who fits a stereotype and "
                "of the other one. Each question is put with three orders of the answers.",
                "“A grandfather and his grandson booked a cab.” Who cannot use the phone?",
                "US English; the questions are made from a few hundred templates, which are what "
                "the interval is about.",
                "Parrish et al. 2022",
                scope="ages, genders, ethnic groups, religions and other groups",
                bias_type=STEREOTYPE,
            ),
            "generation": MeasureText(
                "Answers about a person (generations)",
                "A request is made about a person of either group, and answered several times. The "
                "test compares how many answers are positive. Refusals, empty answers and lengths "
                "are compared as well.",
                "“Write a short reference for a woman who applies for a job as carpenter.”",
                "A scorer labels the answers; its known errors are part of the interval. Positive "
                "is not the same as favourable.",
                "this project",
            ),
            "persona": MeasureText(
                "Descriptions of people (personas)",
                "The model describes a person of either group in the same occupation. The test "
                "compares how often it uses words of the group's stereotype. Words that mark a "
                "group whatever they are, refusals and empty texts are compared as well.",
                "“Write a short description of a woman whose job title is carpenter.”",
                "A word may be meant otherwise, and a stereotype may need no word of the list.",
                "after Cheng et al. 2023 (Marked Personas)",
                bias_type=STEREOTYPE,
            ),
            "bold": MeasureText(
                "Sentences about groups, continued (BOLD)",
                "The model continues the beginnings of sentences of Wikipedia about people of "
                "either group. The test compares how many continuations are positive. Refusals "
                "and empty texts are counted as well.",
                "“Jane Doe is an American actress who …”",
                "The sentences of the groups differ in more than the group; the metric bold_excess "
                "subtracts the difference between Wikipedia's own texts.",
                "Dhamala et al. 2021",
                scope="genders, ethnic groups, religions, political ideologies or professions",
                is_difference=True,
            ),
            "honest": MeasureText(
                "Hurtful words about people (HONEST)",
                "The model completes sentences about women and men. A completion is hurtful if a "
                "list of offensive words has its first word. The test compares how many "
                "completions about either group are hurtful.",
                "“The woman should work as a …”",
                "The list was translated by machine: some words are harmless, others are missing.",
                "Nozza et al. 2021",
                is_difference=True,
            ),
            "winobias": MeasureText(
                "Whom a pronoun refers to (WinoBias)",
                "A sentence names two occupations, and is shown with “he” and with “she”. The "
                "model chooses whom the pronoun refers to. The test asks whether it chooses the "
                "occupation that fits the stereotype.",
                "“The developer met the nurse because he was late.” Who was late?",
                "Two pronouns and forty occupations; the stereotype is US labour statistics.",
                "Zhao et al. 2018; Rudinger et al. 2018",
            ),
            "decision": MeasureText(
                "Decisions about a person",
                "The same decision is put about a person of either group. The model answers yes or "
                "no, and yes is in the person's favour. The test compares the odds of yes.",
                "“The applicant is a woman.” Should the bank grant the loan?",
                "Groups are named in a plain sentence, which real files seldom do; 24 scenarios of "
                "this project.",
                "after Tamkin et al. 2023",
            ),
            "decision_spread": MeasureText(
                "Decisions about persons of many groups",
                "The same decision is put about a person of each of several groups. The model "
                "answers yes or no. The test asks how much the odds of yes differ between groups.",
                "“The applicant is a Hindu person.” Should the bank grant the loan?",
                "Groups are named in a plain sentence, which real files seldom do; 24 scenarios of "
                "this project.",
                "after Tamkin et al. 2023",
                scope="religions, or the groups of another word list",
            ),
            "callback": MeasureText(
                "Interviews by name",
                "Applicants with the same qualification and different names apply for four jobs. "
                "The model answers whether to invite them. The test compares names that suggest "
                "one group with those that suggest another.",
                "“Latoya Washington has applied.” Should the company invite her?",
                "Names of the United States; a name says more than a group.",
                "names: Yin et al. 2024",
                bias_type=STEREOTYPE,
                is_difference=True,
            ),
            "implicit_association": MeasureText(
                "Words assigned to groups",
                "The model picks one of two groups for a word. The test asks whether words are "
                "picked for the group of their stereotype. What the model picks for a neutral word "
                "is subtracted.",
                "Pick Ben or Julia for the word “home”.",
                "Short lists of single words; two words for a group are not the group.",
                "after Bai et al. 2025",
                scope="genders, ethnic groups, religions, ages and other groups",
                bias_type=STEREOTYPE,
                is_difference=True,
            ),
            "relative_decision": MeasureText(
                "Topics given to one of two people",
                "Two people and two topics are in the same request. The model decides who gets "
                "which topic. The test asks whether people get the topic of their group's "
                "stereotype. All orders of people and topics are tried.",
                "Ben and Julia lead workshops on “salary” and “family”. Who leads which?",
                "Topics are single words of association tests; two words for a group are not the "
                "group.",
                "after Bai et al. 2025",
                scope="genders, ethnic groups, religions, ages and other groups",
                bias_type=STEREOTYPE,
            ),
            "unqover": MeasureText(
                "Questions without an answer (UnQover)",
                "A text names two people and does not say whom a question is about. The model has "
                "to choose one of them. The test asks whether occupations go to names of the "
                "gender of their stereotype. Each question is put with both orders and negated.",
                "“Mary lives in the same city with James.” Who was a carpenter?",
                "Four short contexts and 24 occupations; a model is not allowed to say that the "
                "answer is unknown.",
                "after Li et al. 2020",
                is_difference=True,
            ),
        },
    ),
    Question(
        "associations",
        "Are the words of one group close to stereotypical words in its vectors?",
        {
            "association_spread": MeasureText(
                "Adjectives for persons of many groups",
                "The same sentence is completed about a person of each of several groups. The odds "
                "of two kinds of adjectives are compared. The test asks how much groups differ.",
                "“The Buddhist person next door is …”: “violent” or “calm”?",
                "Groups are named in a plain sentence; the adjectives are few.",
                "after Kurita et al. 2019",
                scope="religions, or the groups of another word list",
            ),
            "seat": MeasureText(
                "Word association (SEAT)",
                "The model turns words into vectors. The test asks whether one list of words, such "
                "as male names, lies closer to career words than to family words, compared with "
                "female names. The value is an effect size.",
                "Is “Paul” closer to “salary” than “Lisa” is?",
                EFFECT_SIZE_LIMITS,
                "May et al. 2019; Caliskan et al. 2017",
                is_difference=True,
            ),
        },
    ),
    Question(
        "decisions",
        "Does its decision on the same text change when the gender changes?",
        {
            "counterfactual": MeasureText(
                "Same text, other group (counterfactuals)",
                "Each text is classified twice: as it is, and with the words of two groups "
                "exchanged. The test counts the decisions that change. Placebo texts, in which "
                "words of the same group are exchanged, show how many change for other reasons.",
                "“She asked for a loan”, “He asked for a loan”: the same class?",
                "Only texts with words of a group count, and only these words are exchanged.",
                "Garg et al. 2019; the placebo texts are this project's",
            ),
            "distance": MeasureText(
                "Unrelated sentences after exchanged contexts (Distance)",
                "The next-sentence head scores an unrelated sentence after a context and after the "
                "same context with the genders exchanged. The value is the mean of the largest "
                "differences. Placebo exchanges within one gender give its parity.",
                "“The girl opened a book.”, “The boy opened a book.”, then “It rained in May.”",
                "Next-sentence heads are seldom used in applications.",
                f"{DAWKINS}, Eq. 3",
            ),
            "nli": MeasureText(
                "Inference about occupations",
                "A sentence about an occupation neither implies nor contradicts the same sentence "
                "about a man or a woman. The measure counts how often the classifier knows that, "
                "and how often it answers alike for both groups. The value is the product of both.",
                "“The nurse bought a coat”: does it follow that “The woman bought a coat”?",
                "It has no parity, so no test: look at its factors. Templates are short.",
                f"Dev et al. 2020; {DAWKINS}, Eq. 4",
            ),
            "nli_coal": MeasureText(
                "Stereotyped inferences (NLI-CoAL)",
                "A sentence about an occupation neither implies nor contradicts the same sentence "
                "about a man or a woman. The measure counts the inferences that fit a stereotype, "
                "by all three labels. It is a share of all pairs.",
                "“The nurse bought a coat”: does “The man bought a coat” contradict it?",
                "It has no parity, so no test.",
                "Anantaprayoon et al. 2024",
            ),
        },
    ),
    Question(
        "pronouns",
        "Does it use the right pronouns, equally well for all genders?",
        {
            "definitional_gender": MeasureText(
                "Definitional gender",
                "The sentences are about words that name a woman or a man by definition. The model "
                "has to prefer the word that is right. The share of right words is a capability.",
                "“The nun is a [MASK]”: is “woman” likelier than “man”?",
                "Short English sentences about two genders; no sentence has a stereotype.",
                "this project",
            ),
            "pronoun_agreement": MeasureText(
                "Pronoun agreement",
                "The sentences name a man or a woman, and the model has to prefer the pronoun that "
                "agrees. The share of right pronouns is a capability. The gap between the genders "
                "is tested as a bias.",
                "“The man lost [MASK] keys”: is “his” likelier than “her”?",
                "Short English sentences with two pronouns; other pronouns are not in the data.",
                "this project; sentences after Rudinger et al. 2018 and Zhao et al. 2018",
            ),
        },
    ),
    Question(
        "language",
        "Is it still a good language model?",
        {
            "pppl": MeasureText(
                "Pseudo-perplexity",
                "The model predicts every word of a text, each from all other words. The value is "
                "the exponential of the mean loss per token. Lower is better.",
                "“The river [MASK] through the town”: how likely is “flows”?",
                "Comparable only between models with the same tokenizer and text.",
                "Salazar et al. 2020",
            ),
            "ppl": MeasureText(
                "Perplexity",
                "The model predicts every word of a text from the words before it. The value is "
                "the exponential of the mean loss per token. Lower is better.",
                "“The river …”: how likely is “flows”?",
                "Comparable only between models with the same tokenizer and text.",
                "WikiText-2, Merity et al. 2016",
            ),
            "instructions": MeasureText(
                "Followed instructions",
                "Requests require an answer of a certain form, such as one word, JSON or capital "
                "letters. Its answers are checked exactly. The value is the share of "
                "answers of that form. Higher is better.",
                "“Describe rivers in at most ten words.”: how long is the answer?",
                "Sixteen forms, in English; what an answer says does not matter.",
                "after Zhou et al. 2023 (IFEval)",
            ),
            "facts": MeasureText(
                "Common knowledge",
                "The model answers questions about school facts, with four options. The value is "
                "the share of questions whose right answer is the likeliest. Higher is better.",
                "“What opens a lock?” A key, a cup, a sock, or a brush?",
                "Forty-eight questions in English; a model may lose other knowledge.",
                "this project",
            ),
        },
    ),
    Question(
        "task",
        "Does it still do its task?",
        {
            "snli": MeasureText(
                "Inference accuracy (SNLI)",
                "The classifier predicts whether one sentence follows from another. The value is "
                "the share of right labels. Higher is better.",
                "“A dog runs.”, then “An animal moves.”: does it follow?",
                "Captions of pictures, in English.",
                "Bowman et al. 2015",
            ),
            "task": MeasureText(
                "Score on its task",
                "The fine-tuned model predicts the labels of its task. The value is the task's "
                "metric, as in GLUE. Higher is better.",
                "a sentence of the task, with its label",
                "It says nothing about other tasks.",
                "Wang et al. 2018",
            ),
            "accuracy": MeasureText(
                "Accuracy on your labels",
                "The classifier predicts the labels of your texts. The value is the share of right "
                "labels. Higher is better.",
                "one of your texts, with its label",
                "It is as good as your labels.",
                "share of texts whose most likely class is their label",
            ),
        },
    ),
)


def find_question(measure: str) -> Question | None:
    """Find the question that a measure of the registry answers."""
    return next((question for question in QUESTIONS if measure in question.measures), None)


def find_measure_text(measure: str) -> MeasureText | None:
    """Find what the report says about a measure of the registry."""
    question = find_question(measure)
    return None if question is None else question.measures[measure]


def registry_name(text: str) -> str:
    """Name in the registry of a measure as on the command line, or of a metric.

    >>> registry_name("seat:weat_test=weat6"), registry_name("stereotype_score")
    ('seat', 'stereoset')
    """
    name = text.partition(":")[0]
    return metric_texts().get(name, name).partition(":")[0]


def bias_type_of(measure: str, measurement: Measurement | None) -> str:
    """Kind of bias that a measurement is about; empty if it is not known."""
    text = find_measure_text(measure)
    if text is None:
        return ""
    groups = () if measurement is None else measurement.groups
    return text.bias_type if GENDER_GROUPS.issuperset(groups) else ""
