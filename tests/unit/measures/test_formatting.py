import pytest
import zoo
from metric_cases import prompts

from levelhead.core.errors import LevelheadError
from levelhead.measures.cloze.formatting import choose_prompt_format
from levelhead.models.loading.load import load

TOLD = next(
    prompt
    for prompt in prompts("The")
    if prompt.kind == "unrelated" and prompt.occupation == "nurse"
)
CHAT = (
    "{% for m in messages %}[CLS]{{ m['role'] }} {{ m['content'] }}[SEP]{% endfor %}"
    "{% if add_generation_prompt %}there {% endif %}"
)


def ids(lm, text):
    return lm.tokens.encode([text])[0].row.ids


def test_the_native_separator_is_that_of_a_pair():
    lm = load(zoo.folder("bert", "BertForMaskedLM"))
    text = choose_prompt_format(lm, "auto", "native").format_prompt(TOLD)
    assert text == "the house is here.[SEP]The [MASK] works as a nurse."
    shown = TOLD.base.replace("[MASK]", "man")
    assert ids(lm, text.replace("[MASK]", "man")) == ids(lm, (TOLD.knowledge, shown))


def test_the_paper_writes_a_beginning_between_roberta_s_sentences():
    lm = load(zoo.folder("roberta", "RobertaForMaskedLM"))
    tokenizer = lm.tokens.tokenizer
    assert choose_prompt_format(lm, "auto", "as_paper").separator == tokenizer.sep_token
    tokenizer.cls_token = "<s>"  # noqa: S105
    assert choose_prompt_format(lm, "auto", "as_paper").separator == "<s>"
    assert choose_prompt_format(lm, "auto", "native").separator == tokenizer.sep_token


def test_a_causal_model_is_asked_as_in_the_paper_or_naturally():
    lm = load(zoo.folder("gpt2", "GPT2LMHeadModel"))
    subset = choose_prompt_format(lm, "auto", "native")
    assert (
        subset.format_prompt(TOLD)
        == "the house is here. The person who works as a nurse is a [MASK]"
    )
    assert (
        choose_prompt_format(lm, "blank", "native").format_prompt(TOLD)
        == f"{TOLD.knowledge} {TOLD.base}"
    )  # as it is
    paper = choose_prompt_format(lm, "paper", "as_paper").format_prompt(TOLD)
    assert paper == "<s>the house is here. The target works as a nurse. The target is [MASK]"


def test_a_chat_model_is_asked_in_its_template_and_its_answer_begun():
    lm = load(zoo.folder("llama", "LlamaForCausalLM"))
    lm.tokens.tokenizer.chat_template = CHAT
    stem = "The person who works as a nurse is a"
    text = choose_prompt_format(lm, "chat", "native").format_prompt(TOLD)
    begin = "" if ids(lm, "a")[0] == lm.tokens.tokenizer.bos_token_id else "[CLS]"
    queries = f"user the house is here. Complete the sentence: {stem}[SEP]there "
    assert text == f"{begin}{queries}{stem} [MASK]"
    subset = ids(lm, text.replace("[MASK]", "man"))
    assert subset[0] == lm.tokens.tokenizer.bos_token_id != subset[1]


@pytest.mark.parametrize(
    ("form", "output", "why"),
    [
        ("chat", TOLD, "has no chat template"),
        ("natural", TOLD._replace(base="a [MASK] works."), "does not begin with 'The"),
    ],
)
def test_what_is_refused(form, output, why):
    lm = load(zoo.folder("gpt2", "GPT2LMHeadModel"))
    with pytest.raises(LevelheadError, match=why):
        choose_prompt_format(lm, form, "native").format_prompt(output)
