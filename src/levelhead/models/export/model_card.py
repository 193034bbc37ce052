"""The README of an edited model: what was edited, gained, paid, and what is not shown.

Everything we say stands between two marks, at the top, and is replaced when a model is edited and
saved again. What a base's own card says is kept below, as the words of whoever wrote it; numbers in
its metadata are not, because they were measured before the edit.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, cast

from huggingface_hub import ModelCard, ModelCardData

from levelhead.core.errors import LevelheadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.results import Measurement
    from levelhead.models.lm import LM

README = "README.md"
BEGIN, END = "<!-- levelhead: begin -->", "<!-- levelhead: end -->"

Change = tuple["Measurement", "Measurement"]
"""A measurement of the base and the same of the edited model."""

_NOTHING = "No measurement was given for this card: {what} is not shown."
_NOT_SHOWN = (
    "Anything that no row above measures: other measures, other groups, languages, domains and "
    "tasks.",
    "That groups are treated alike. A smaller value of one measure is a smaller value of one "
    "measure.",
    "What happens after fine-tuning: bias in a pretrained model and in a task need not go together "
    "(Dawkins et al. 2024).",
)
_INSIDE = "The edit is folded into the weights: `{name}.from_pretrained` loads it."
_LEFT = {
    "pooled": "What is taken out of the pooled vector is taken out where the last layer of the "
    "classifier reads it: the vector itself (`pooler_output`, and whatever `AutoModel` gives "
    "without that layer) is **the base's**.",
    "block_out": "What is taken out of the first token is taken out where the pooler reads it: the "
    "token's own last hidden state is **the base's**.",
}
_APART = """\
The weights in this folder are **those of the base, unchanged**, and the edit lies beside them:
`AutoModel.from_pretrained` alone gives the model **without it**. These lines give the edited model,
with PyTorch, transformers and safetensors:

```python
{code}```

With levelhead: `levelhead.load(folder, edit=folder)`."""
_FIRST = (
    " An edit of the first token holds for whole texts, padded on the right: "
    "with `generate`, pass `use_cache=False`."
)


def check_changes(lm: LM, saved: LM, changes: Sequence[Change]) -> None:
    """Refuse numbers that were not measured on this edit and its base.

    Args:
        lm: the model with its edits.
        saved: the same as it is written: with them, or with them folded in.
        changes: gains and prices.
    """
    if changes and not lm.edits:
        raise LevelheadError(
            "gains and prices of a model that is not edited",
            mend="write lm.edited(edit).save_pretrained(folder, gained=..., paid=...)",
        )
    base, edited = replace(lm, edits=()).content_hash, {lm.content_hash, saved.content_hash}
    for before, after in changes:
        if (before.measure, before.comparable) != (after.measure, after.comparable):
            raise LevelheadError(
                f"{before.measure} before and {after.measure} after are different measures",
                mend="give the same measure, with the same options, of the base and of the edit",
            )
        if before.provenance.model_hash != base:
            raise LevelheadError(
                f"the first {before.measure} was not measured on the base of this edit",
                mend="give (measure(lm), measure(lm.edited(...))), in this order",
            )
        if after.provenance.model_hash not in edited:
            raise LevelheadError(
                f"the second {after.measure} was not measured on this edited model",
                mend="measure the model that is saved: (measure(lm), measure(lm.edited(...)))",
            )


def card(
    lm: LM, *, code: str | None, gained: Sequence[Change] = (), paid: Sequence[Change] = ()
) -> str:
    """The README of an edited model.

    Args:
        lm: the model with its edits, not yet folded.
        code: the lines that apply the edits, if they are beside the weights and not in them.
        gained: measurements of bias, before and after.
        paid: measurements of what the edit costs: fluency, accuracy.
    """
    own = "\n\n".join(
        [
            f"# {lm.identity.shown}, edited",
            _where(lm, code),
            "## What was edited",
            _base(lm),
            "\n".join(_described(lm)),
            "## What was gained",
            _table(gained, "whether the edit lowers any bias"),
            "## What was paid",
            _table(paid, "what the edit costs in fluency or accuracy"),
            "## What is not shown",
            "\n".join(f"- {line}" for line in _NOT_SHOWN),
        ]
    )
    data, below = _of_the_base(lm)
    if "/" in lm.identity.shown:
        data.base_model = lm.identity.name
    told = data.to_yaml().strip()
    head = "" if told == "{}" else f"---\n{told}\n---\n"
    return f"{head}{BEGIN}\n{own}\n{END}\n" + (f"\n{below}\n" if below else "")


def _of_the_base(lm: LM) -> tuple[ModelCardData, str]:
    """The metadata and the text of the base's own card; what an earlier edit said is left out."""
    path = lm.identity.checkpoint.folder / README
    if not path.is_file():
        return ModelCardData(), ""
    try:
        found = ModelCard(path.read_text(encoding="utf-8"))
    except Exception as error:
        raise LevelheadError(
            f"the base's {README} is no model card: {(str(error).splitlines() or [''])[0]}",
            mend=f"correct or remove {README} in the base's folder",
        ) from None
    data = cast("ModelCardData", found.data)
    data.eval_results = None
    ours = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    return data, ours.sub("", found.text).strip()


def _where(lm: LM, code: str | None) -> str:
    if code is None:
        streams = {site.stream for edit in lm.edits for site in edit.at}
        told = (line for stream, line in _LEFT.items() if stream in streams)
        return " ".join([_INSIDE.format(name=type(lm.anatomy.model).__name__), *told])
    first = any(edit.settings.get("tokens") == "first" for edit in lm.edits)
    return _APART.format(code=code) + (_FIRST if first and lm.is_causal else "")


def _base(lm: LM) -> str:
    revision = f", revision `{lm.identity.revision}`" if lm.identity.revision else ""
    return (
        f"The base is `{lm.identity.shown}`{revision} (SHA-256 of its files "
        f"`{lm.identity.checkpoint.hash}`). In a forward, what passes these places is edited; "
        "layers and heads are counted from 0:"
    )


def _described(lm: LM) -> list[str]:
    lines = [f"- an edit folded in earlier, `{folded[:12]}`" for folded in lm.identity.folded]
    for (words, _), group in groupby(lm.edits, key=lambda edit: (edit.describe(), edit.kind)):
        places = ", ".join(str(site) for edit in group for site in edit.at)
        lines.append(f"- {words}: {places}")
    return lines


def _table(changes: Sequence[Change], what: str) -> str:
    if not changes:
        return _NOTHING.format(what=what)
    rows = [
        "| measure | base | edited | parity | items used |",
        "|---|---|---|---|---|",
    ]
    for before, after in changes:
        parity = "" if after.parity is None else f"{after.parity:.4g}"
        rows.append(
            f"| {after.measure}{f' ({after.unit})' if after.unit else ''} | {_told(before)} | "
            f"{_told(after)} | {parity} | {after.n} of {after.items} |"
        )
    levels = sorted({one.interval.level for change in changes for one in change})
    rows += ["", f"In brackets: intervals at {', '.join(f'{level:.0%}' for level in levels)}."]
    return "\n".join(rows)


def _told(one: Measurement) -> str:
    return f"{one.value:.4g} {one.interval}"
