"""How a prompt of Counteracts (Zhang 2023, Input Representation) is put to a model.

The paper writes [SEP] between knowledge and base for BERT and ALBERT, <s> for RoBERTa (whose own
separator is another), and for GPT-2, which knows no blank, the word "target" in its place and a
second sentence after it. All of it can be had; what the model was trained on is the default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.errors import NotMeasurable
from levelhead.models.inputs.tokenizer import MASK
from levelhead.models.loading.http_model import Remote

if TYPE_CHECKING:
    from levelhead.data.prompts.counteracts import Prompt
    from levelhead.models.inputs.tokenizer import Tokens
    from levelhead.models.lm import LM

Form = Literal["auto", "blank", "paper", "natural", "chat"]
Separator = Literal["native", "as_paper"]
BEGIN = "<s>"
"""What the paper puts before RoBERTa's and GPT-2's texts; to GPT-2 it is three characters."""
REQUEST = "Complete the sentence:"


class Wording(NamedTuple):
    """One way to put prompts."""

    form: Form
    separator: str
    """Between knowledge and base."""
    front: str
    tokens: Tokens | None = None
    """Of a chat model: its template."""

    def __str__(self) -> str:
        before = f"; {self.front!r} before all" if self.front else ""
        return f"prompts put as {self.form!r}, knowledge before {self.separator!r}{before}"

    def put(self, prompt: Prompt) -> str:
        """The text, with its blank."""
        if self.form == "chat":
            return self._asked(prompt)
        base = prompt.base
        if self.form == "paper":
            base = f"{base.replace(MASK, 'target')} The target is {MASK}"
        elif self.form == "natural":
            base = f"{stem(prompt)} {MASK}"
        joined = f"{prompt.knowledge}{self.separator}{base}" if prompt.knowledge else base
        return f"{self.front}{joined}"

    def _asked(self, prompt: Prompt) -> str:
        """A user's turn, and the beginning of the answer."""
        assert self.tokens is not None  # noqa: S101  # `wording` refuses chat without them
        sentence = stem(prompt)
        request = f"{REQUEST} {sentence}"
        said = f"{prompt.knowledge}{self.separator}{request}" if prompt.knowledge else request
        text = self.tokens.tokenizer.apply_chat_template(
            [{"role": "user", "content": said}], tokenize=False, add_generation_prompt=True
        )
        return f"{_once(self.tokens, str(text))}{sentence} {MASK}"


def wording(lm: LM | Remote, form: Form, separator: Separator) -> Wording:
    """The way to put prompts to a model; "auto" is "blank" or, for causal models, "natural"."""
    causal = lm.is_causal
    if form == "auto":
        form = "natural" if causal else "blank"
    if isinstance(lm, Remote):
        if form == "chat":
            raise NotMeasurable(
                "the chat template of a model behind HTTP is not known here",
                mend="put the prompts as 'natural', or load the model's weights",
            )
        if separator == "as_paper":
            raise NotMeasurable(
                f"whether a server takes {BEGIN} for a word is not known here",
                mend="leave separator out, or load the model's weights",
            )
        return Wording(form, " ", "")
    tokenizer = lm.tokens.tokenizer
    if form == "chat" and not tokenizer.chat_template:
        raise NotMeasurable(
            f"{lm.identity.name} has no chat template", mend="put the prompts as 'natural'"
        )
    own = tokenizer.bos_token == BEGIN  # it stands before every text already
    front = BEGIN if causal and separator == "as_paper" and form != "chat" and not own else ""
    between = " " if causal or not tokenizer.sep_token else _between(lm.tokens, separator)
    return Wording(form, between, front, lm.tokens)


def stem(prompt: Prompt) -> str:
    """A sentence that a causal model goes on with: "The person who works as a nurse is a"."""
    who = f"The {MASK}"
    if not prompt.base.startswith(who):
        raise NotMeasurable(
            f"{prompt.base!r:.60} does not begin with {who!r}",
            mend="write own prompts so; or put them as 'paper', or as they are to a masked model",
        )
    return f"{prompt.base.replace(who, 'The person who', 1).rstrip('.')} is a"


def _between(tokens: Tokens, separator: Separator) -> str:
    tokenizer = tokens.tokenizer
    if separator == "as_paper" and tokenizer.cls_token == BEGIN:
        return BEGIN
    single, pair = (tokenizer.num_special_tokens_to_add(pair=pair) for pair in (False, True))
    count = 1 if separator == "as_paper" else max(1, pair - single)
    return str(tokenizer.sep_token) * count


def _once(tokens: Tokens, text: str) -> str:
    """Without the beginning token that the template writes, if one is put before every text."""
    begin = str(tokens.tokenizer.bos_token or "")
    (sample,) = tokens.encode(["a"])
    put = sample.row.ids[0] == tokens.tokenizer.bos_token_id
    return text.removeprefix(begin) if put and begin else text
