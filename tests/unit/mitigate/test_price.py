"""Mitigations by edit and by prompt, judged on bias and on their price."""

from dataclasses import replace
from functools import cache

import pytest
from faulty_server import faulty_server, generated, reply
from metric_cases import FAST, made, model

import levelhead as lh
from levelhead.calibrate.organisms import chat_items
from levelhead.calibrate.organisms.chat import make_chat_organism
from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.data.prompts.decisions import load_scenarios
from levelhead.data.prompts.facts import FactQuestion
from levelhead.data.prompts.instructions import Instruction
from levelhead.measures.decisions.decision import Decision
from levelhead.measures.run import run_measures
from levelhead.measures.utility.facts import Facts
from levelhead.measures.utility.instructions import Instructions
from levelhead.mitigate.evaluation.price import evaluate_mitigation, list_price_measures
from levelhead.models.edits.base import HeadScale
from levelhead.models.inputs.chat import ChatFormat
from levelhead.models.loading.http_model import HttpModel
from levelhead.models.sites import Site

INFERENCE = lh.Inference(resamples=199, permutations=199)
GROUP_HEAD, COPY_HEADS = 0, (7, 8, 9, 10)
"""Heads of a chat organism: the one that looks up words of a group, and those that look up which
words a request names."""
DECISION = Decision(scenarios=load_scenarios()[:12])
INSTRUCTIONS = Instructions(
    # Every answer of an organism names the topic of its request, and is in small letters.
    tuple(
        Instruction(
            f"{check} {topic}", topic, chat_items.GENERATION_REQUESTS[0].format(
                a="a", person="woman", occupation=topic
            ), check, topic if check == "contains" else "",
        )
        for number, topic in enumerate(chat_items.TOPICS)
        for check in ("contains", "lower")[: 1 + number % 2]
    ),
    tokens=chat_items.ANSWER_TOKENS,
)  # fmt: skip
FACTS = Facts(
    questions=tuple(
        FactQuestion(f"Who is a {right} ?", "people", (right, other))
        for right, other in zip(*chat_items.GROUP_WORDS, strict=True)
        for right, other in ((right, other), (other, right))
    )
    + tuple(
        FactQuestion(f"Should the {word} {word} ?", "words", (word, other))
        for word, other in (("yes", "no"), ("no", "yes"))
    ),
)
"""Questions that name their answer: the organism gives the word that a request names most often."""


def masked(lm, *heads, factor=0):
    return lm.edited(HeadScale([Site("head_out", 0, head) for head in heads], factor))


@cache
def organism(rule="decision", dose=2.0):
    return make_chat_organism(rule, dose).load_lm()


def judge(mitigated, measures=(DECISION,), price=(INSTRUCTIONS, FACTS), base=None):
    return evaluate_mitigation(
        base or organism(), mitigated, measures, price=price, inference=INFERENCE
    )


def test_an_edit_that_removes_the_planted_rule_alone_costs_nothing():
    """It changes no other answer, which is said, and is no number with an interval."""
    report = judge(masked(organism(), GROUP_HEAD))
    assert report.reduced == ("decision",)
    assert abs(report.bias[0].second.value) < 0.3 < 1 < report.bias[0].first.value
    assert report.costs == ()
    reasons = {row.measure: row.reason for row in report.unmeasured}
    assert set(reasons) == {"instructions", "facts"}
    # Wilson's bounds of 0 of 16 topics and of 0 of 6 questions.
    assert "no item changed; of other kinds, at most 19% would (95%, 16 kinds)" in reasons.values()
    assert "at most 39% would (95%, 6 questions)" in reasons["facts"]


def test_a_damaging_edit_reduces_the_bias_too_and_its_price_is_seen():
    lm = masked(organism(), GROUP_HEAD)
    # Against what a request names: it gives another topic, and the other answer.
    report = judge(masked(lm, *COPY_HEADS, factor=-1))
    (instructions,) = (row for row in report.price if row.measure == "instructions")
    assert instructions.first.value == 100
    assert instructions.second.value == pytest.approx(100 / 3)  # small letters are left
    assert "instructions" in report.costs
    assert "facts" in report.costs
    assert "worse in instructions, facts" in str(report)
    rows = report.to_frame("dict")
    assert set(rows["part"]) == {"bias", "price"}
    assert type(report).from_json(report.to_json()) == report


def test_a_bias_of_texts_is_judged_in_texts():
    lm = organism("late", 3.0)
    texts = chat_items.list_generation_measures(0)["generation"]
    report = judge(masked(lm, GROUP_HEAD), [replace(texts, k=4)], [INSTRUCTIONS], base=lm)
    assert report.reduced == ("generation",)
    assert report.costs == ()


# -- by prompt


PROMPT = "no no no ."


def test_a_model_with_a_system_prompt_is_a_model_like_any_other():
    lm = organism()
    prompted = lm.with_system_prompt(PROMPT)
    request = DECISION.queries(lm)[0].items[0].queries[0][0]
    as_option = replace(DECISION, system=PROMPT)
    # The prompt of the model and that of the measure give the same texts and responses.
    (by_model,), (by_measure,) = DECISION.read(prompted), as_option.read(lm)
    assert by_model.values.equal(by_measure.values)
    assert not by_model.values.equal(DECISION.read(lm)[0].values)
    both = ChatFormat(system="Be brief.").after_system(PROMPT)
    assert both.messages(request)[0]["content"] == f"{PROMPT}\n\nBe brief."
    # Nothing that is stored can be mixed up.
    assert prompted.content_hash != lm.content_hash
    assert lm.with_system_prompt("").content_hash == lm.content_hash
    result = DECISION(prompted, inference=FAST)
    assert result.provenance.settings["model"]["system_prompt"] == PROMPT
    assert "a system prompt" in str(prompted)
    assert prompted.edited(HeadScale([Site("head_out", 0, 1)], 0)).system_prompt == PROMPT
    with pytest.raises(LevelheadError, match="cannot be saved in weights"):
        prompted.save_pretrained("nowhere")


def test_generated_texts_follow_the_prompt_only_in_a_chat():
    lm = model("generation")
    prompted = lm.with_system_prompt("the nurse is tired")
    config = lh.GenerationConfig(max_tokens=6, temperature=0)
    text = "the man is"
    assert prompted.generate([text], config) == lm.generate([text], config)
    chat = ChatFormat("plain")
    asked = prompted.generate([text], config, chat=chat)
    assert asked == lm.generate([f"the nurse is tired\n\n{text}"], config)
    measure = made("instructions")
    (responses,) = measure.read(prompted)
    assert responses.texts != measure.read(lm)[0].texts


def test_a_prompt_is_judged_as_an_edit_is():
    report = judge(organism().with_system_prompt(PROMPT))
    (decision,) = report.bias
    assert decision.difference.n == 12
    assert len(report.price) + len(report.unmeasured) == 2
    assert "not measured" in str(report) or report.price


def test_what_a_prompt_cannot_change_is_no_comparison():
    lm = organism()
    prompted = lm.with_system_prompt(PROMPT)
    names = [measure.name for measure in list_price_measures(prompted)]
    assert names == ["instructions", "facts"]
    assert [measure.name for measure in list_price_measures(lm)] == [*names, "ppl"]
    assert "ppl" in [row.name for row in list_price_measures(masked(prompted, 0))]
    with pytest.raises(NotMeasurableError, match="same answer to every query"):
        run_measures(model("ppl").with_system_prompt("the"), [made("ppl")], against=model("ppl"))


def test_bias_and_price_are_not_exchanged():
    lm = organism()
    with pytest.raises(LevelheadError, match="decision is no measure of utility"):
        judge(masked(lm, 0), price=[DECISION])
    with pytest.raises(LevelheadError, match="facts is no measure of bias"):
        judge(masked(lm, 0), measures=[FACTS])


def test_a_served_model_is_judged_by_prompt_too():
    """A server that only writes gets the prompt as a system message, for one model alone."""
    texts = {True: "Blue", False: "Blue it is, or red"}

    def answer(number, body):
        messages = body["messages"]
        # Answers to the two models differ; to different requests, too.
        text = texts[messages[0]["role"] == "system"]
        return reply(generated(message={"content": f"{text}{len(messages[-1]['content']) % 2}"}))

    with faulty_server(answer) as (url, queries):
        served = HttpModel(url)
        client = served.client
        assert served.with_system_prompt("") is served
        prompted = served.with_system_prompt("Be brief.")
        assert prompted.client is client  # one connection, once there is one
        assert prompted.content_hash != served.content_hash
        assert served.content_hash == HttpModel(url).content_hash
        assert prompted.settings["system_prompt"] == "Be brief."
        price = Instructions(
            tuple(
                Instruction(f"{i}", f"{i}", "Name a colour." + "!" * i, check, argument)
                for i in range(8)
                for check, argument in ((("words", "1-1"), ("lower", ""))[i % 4 == 0],)
            )
        )
        assert [row.name for row in list_price_measures(prompted)] == ["instructions", "facts"]
        assert list_price_measures(prompted)[1].generated_answers
        report = evaluate_mitigation(served, prompted, [], price=[price], inference=INFERENCE)
    (comparison,) = report.price
    assert (comparison.first.value, comparison.second.value) == (0, 75)
    assert report.costs == ()
    sent = [body["messages"] for path, body, _ in queries if body]
    assert {messages[0]["content"] for messages in sent if len(messages) == 2} == {"Be brief."}
    assert sum(len(messages) == 2 for messages in sent) == len(sent) / 2
