"""Prompt formats of Counteracts (Zhang 2023, Input Representation).

The paper writes [SEP] between knowledge and base for BERT and ALBERT, and <s> for RoBERTa (whose
separator is a different token). For GPT-2, which has no blank, it writes the word "target" in its
place and adds a second sentence. All formats are available; the default is the format that the
model was trained on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from levelhead.core.errors import NotMeasurableError
from levelhead.models.inputs.chat import remove_double_begin
from levelhead.models.inputs.chat_template import render_chat
from levelhead.models.inputs.tokenizer import MASK
from levelhead.models.serving.served_model import ServedModel

if TYPE_CHECKING:
    from levelhead.data.prompts.counteracts import CounteractsPrompt
    from levelhead.models.inputs.tokenizer import Tokens
    from levelhead.models.lm import LM

Form = Literal["auto", "blank", "paper", "natural", "chat"]
Separator = Literal["native", "as_paper"]
# RoBERTa's begin token; GPT-2's vocabulary has no such token.
BEGIN = "<s>"
"""Prefix of RoBERTa's and GPT-2's texts in the paper; for GPT-2 it is three characters."""
REQUEST = "Complete the sentence:"


class PromptFormat(NamedTuple):
    """One format of prompts."""

    form: Form
    separator: str
    """Text between knowledge and base."""
    prefix: str
    tokens: Tokens | None = None
    """Tokenizer of a chat model, with its template."""

    def __str__(self) -> str:
        before = f"; {self.prefix!r} before all" if self.prefix else ""
        return f"prompts put as {self.form!r}, knowledge before {self.separator!r}{before}"

    def format_prompt(self, prompt: CounteractsPrompt) -> str:
        """Format a prompt as text with a blank."""
        if self.form == "chat":
            return self._format_chat(prompt)
        base = prompt.base
        if self.form == "paper":
            base = f"{base.replace(MASK, 'target')} The target is {MASK}"
        elif self.form == "natural":
            base = f"{prompt_prefix(prompt)} {MASK}"
        joined = f"{prompt.knowledge}{self.separator}{base}" if prompt.knowledge else base
        return f"{self.prefix}{joined}"

    def _format_chat(self, prompt: CounteractsPrompt) -> str:
        """Format the user's turn and the beginning of the answer."""
        assert self.tokens is not None  # noqa: S101  # `choose_prompt_format` refuses chat without them
        sentence = prompt_prefix(prompt)
        request = f"{REQUEST} {sentence}"
        message = f"{prompt.knowledge}{self.separator}{request}" if prompt.knowledge else request
        text = render_chat(self.tokens.tokenizer, [{"role": "user", "content": message}])
        # The sentence is repeated as the answer's beginning: the blank then follows the same words
        # as in "natural".
        return f"{remove_double_begin(self.tokens, text)}{sentence} {MASK}"


def choose_prompt_format(lm: LM | ServedModel, form: Form, separator: Separator) -> PromptFormat:
    """Choose the prompt format; "auto" is "blank" for masked and "natural" for causal models."""
    causal = lm.is_causal
    if form == "auto":
        form = "natural" if causal else "blank"
    if isinstance(lm, ServedModel):
        if form == "chat":
            raise NotMeasurableError(
                "the chat template of a model behind HTTP is not known here",
                hint="put the prompts as 'natural', or load the model's weights",
            )
        if separator == "as_paper":
            raise NotMeasurableError(
                f"whether a server takes {BEGIN} for a word is not known here",
                hint="leave separator out, or load the model's weights",
            )
        return PromptFormat(form, " ", "")
    tokenizer = lm.tokens.tokenizer
    if form == "chat" and not tokenizer.chat_template:
        raise NotMeasurableError(
            f"{lm.identity.name} has no chat template", hint="put the prompts as 'natural'"
        )
    # Such a tokenizer adds the token itself: a second one would be unlike its training text.
    writes_begin = tokenizer.bos_token == BEGIN
    prefix = (
        BEGIN if causal and separator == "as_paper" and form != "chat" and not writes_begin else ""
    )
    between = " " if causal or not tokenizer.sep_token else _separator_text(lm.tokens, separator)
    return PromptFormat(form, between, prefix, lm.tokens)


def prompt_prefix(prompt: CounteractsPrompt) -> str:
    """Beginning of a sentence for a causal model: "The person who works as a nurse is a"."""
    subject = f"The {MASK}"
    if not prompt.base.startswith(subject):
        raise NotMeasurableError(
            f"{prompt.base!r:.60} does not begin with {subject!r}",
            hint="begin your prompts like this, use form 'paper', or use a masked model",
        )
    return f"{prompt.base.replace(subject, 'The person who', 1).rstrip('.')} is a"


def _separator_text(tokens: Tokens, separator: Separator) -> str:
    tokenizer = tokens.tokenizer
    if separator == "as_paper" and tokenizer.cls_token == BEGIN:
        return BEGIN
    # RoBERTa separates a pair by two separators, BERT by one: the tokenizer knows how many.
    single, pair = (tokenizer.num_special_tokens_to_add(pair=pair) for pair in (False, True))
    count = 1 if separator == "as_paper" else max(1, pair - single)
    return str(tokenizer.sep_token) * count
