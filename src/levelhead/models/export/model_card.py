"""The README of an edited model: edits, effect on bias, utility cost, and what is not shown.

The section that levelhead writes is at the top, between two marks, and is replaced when a model is
edited and saved again. The text of the base's model card is retained below it. Numbers in the
card's metadata are removed, because they were measured before the edit.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, cast

from huggingface_hub import ModelCard, ModelCardData

from levelhead.core.errors import LevelheadError
from levelhead.core.escape import escape_markdown, to_single_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.results import Measurement
    from levelhead.models.editable_model import EditableModel

README_FILE = "README.md"
BEGIN_MARK, END_MARK = "<!-- levelhead: begin -->", "<!-- levelhead: end -->"

MeasurementPair = tuple["Measurement", "Measurement"]
"""A measurement of the base, and the same measurement of the edited model."""

_NO_MEASUREMENT = "No measurement was given for this card: {what} is not shown."
_NOT_SHOWN = (
    "Anything that no row above measures: other measures, other groups, languages, domains and "
    "tasks.",
    "Equal treatment of groups. A smaller value of one measure is only a smaller value of that "
    "measure.",
    "What happens after fine-tuning: bias in a pretrained model and in a task need not go together "
    "(Dawkins et al. 2024).",
)
_MERGED_USAGE = "The edit is merged into the weights: `{name}.from_pretrained` loads it."
# A user who reads these vectors would otherwise take them for edited.
_STILL_BASE = {
    "pooled": "The edit of the pooled vector is in the weights of the classifier's last layer, "
    "which reads this vector: the vector itself (`pooler_output`, and what `AutoModel` returns "
    "without that layer) is **the base's**.",
    "block_out": "The edit of the first token is in the weights of the pooler, which reads this "
    "token: the token's last hidden state is **the base's**.",
}
_EDIT_FILE_USAGE = """\
The weights in this folder are **those of the base, unchanged**, and the edit is in separate files:
`AutoModel.from_pretrained` alone loads the model **without the edit**. These lines load the edited
model, with PyTorch, transformers and safetensors:

```python
{code}```

With levelhead: `levelhead.load(folder, edit=folder)`."""
_FIRST_POSITION_NOTE = (
    " An edit of the first token is valid for complete texts, padded on the right: "
    "with `generate`, pass `use_cache=False`."
)


def check_measurement_pairs(
    lm: EditableModel, saved: EditableModel, changes: Sequence[MeasurementPair]
) -> None:
    """Raise if a measurement was not made on this edited model and its base.

    Args:
        lm: Model with its edits.
        saved: Model as it is written: with its edits, or with merged edits.
        changes: Measurements of bias and utility, as pairs (base, edited model).
    """
    if changes and not lm.edits:
        raise LevelheadError(
            "changes of bias or utility are given for a model without edits",
            hint="write lm.edited(edit).save_pretrained(folder, bias_changes=..., "
            "utility_changes=...)",
        )
    # A merged model has another hash than the same model with hooks; either may be measured.
    base, edited = replace(lm, edits=()).content_hash, {lm.content_hash, saved.content_hash}
    for before, after in changes:
        if (before.measure, before.comparability_key) != (after.measure, after.comparability_key):
            raise LevelheadError(
                f"{before.measure} before and {after.measure} after are different measures",
                hint="give the same measure, with the same options, for base and edited model",
            )
        if before.provenance.model_hash != base:
            raise LevelheadError(
                f"the first {before.measure} was not measured on the base of this edit",
                hint="give (measure(lm), measure(lm.edited(...))), in this order",
            )
        if after.provenance.model_hash not in edited:
            raise LevelheadError(
                f"the second {after.measure} was not measured on this edited model",
                hint="measure the model that is saved: (measure(lm), measure(lm.edited(...)))",
            )


def render_model_card(
    lm: EditableModel,
    *,
    code: str | None = None,
    usage: str | None = None,
    bias_changes: Sequence[MeasurementPair] = (),
    utility_changes: Sequence[MeasurementPair] = (),
) -> str:
    """Render the README of an edited model.

    Args:
        lm: Model with its edits, before merging.
        code: Code that applies the edits, if they are in separate files; None: they are merged.
        usage: How to load the folder, if it holds no checkpoint of transformers.
        bias_changes: Measurements of bias, before and after the edit.
        utility_changes: Measurements of utility, such as fluency or accuracy, before and after.
    """
    section = "\n\n".join(
        [
            f"# {escape_markdown(lm.identity.display_name)}, edited",
            _describe_usage(lm, code) if usage is None else usage,
            "## What was edited",
            _describe_base(lm),
            "\n".join(_describe_edits(lm)),
            "## Effect on bias",
            _table(bias_changes, "whether the edit reduces any bias"),
            "## Utility cost",
            _table(utility_changes, "the cost of the edit in fluency or accuracy"),
            "## What is not shown",
            "\n".join(f"- {line}" for line in _NOT_SHOWN),
        ]
    )
    data, base_text = _read_base_card(lm)
    # The Hub's metadata accepts only Hub ids as a base model, not local folders.
    if "/" in lm.identity.display_name:
        data.base_model = lm.identity.name
    metadata = data.to_yaml().strip()
    front_matter = "" if metadata == "{}" else f"---\n{metadata}\n---\n"
    return f"{front_matter}{BEGIN_MARK}\n{section}\n{END_MARK}\n" + (
        f"\n{base_text}\n" if base_text else ""
    )


def _read_base_card(lm: EditableModel) -> tuple[ModelCardData, str]:
    """Read metadata and text of the base's model card, without levelhead's earlier section."""
    path = lm.identity.checkpoint.folder / README_FILE
    if not path.is_file():
        return ModelCardData(), ""
    try:
        base_card = ModelCard(path.read_text(encoding="utf-8"))
    except Exception as error:
        raise LevelheadError(
            f"the base's {README_FILE} is not a model card: {(str(error).splitlines() or [''])[0]}",
            hint=f"correct or remove {README_FILE} in the base's folder",
        ) from None
    data = cast("ModelCardData", base_card.data)
    # These results are the base's: on the edited model's page they would be read as its own.
    data.eval_results = None
    section = re.compile(f"{re.escape(BEGIN_MARK)}.*?{re.escape(END_MARK)}", re.DOTALL)
    return data, section.sub("", base_card.text).strip()


def _describe_usage(lm: EditableModel, code: str | None) -> str:
    if code is None:
        streams = {site.stream for edit in lm.edits for site in edit.sites}
        notes = (line for stream, line in _STILL_BASE.items() if stream in streams)
        return " ".join([_MERGED_USAGE.format(name=type(lm.layout.model).__name__), *notes])
    has_first_token_edit = any(edit.settings.get("tokens") == "first" for edit in lm.edits)
    return _EDIT_FILE_USAGE.format(code=code) + (
        _FIRST_POSITION_NOTE if has_first_token_edit and lm.is_causal else ""
    )


def _describe_base(lm: EditableModel) -> str:
    revision = f", revision {_code(lm.identity.revision)}" if lm.identity.revision else ""
    return (
        f"The base is {_code(lm.identity.display_name)}{revision} (SHA-256 of its files "
        f"`{lm.identity.checkpoint.hash}`). In a forward pass, the activations at these sites are "
        "edited; layers and heads are counted from 0:"
    )


def _code(name: str) -> str:
    """A name as code; a backtick in it would end the code."""
    return "`" + to_single_line(name).replace("`", "'") + "`"


def _describe_edits(lm: EditableModel) -> list[str]:
    lines = [
        f"- an edit merged earlier, `{merged_hash[:12]}`"
        for merged_hash in lm.identity.merged_edits
    ]
    for (description, _), group in groupby(lm.edits, key=lambda edit: (edit.describe(), edit.kind)):
        sites = ", ".join(str(site) for edit in group for site in edit.sites)
        lines.append(f"- {description}: {sites}")
    return lines


def _table(changes: Sequence[MeasurementPair], subject: str) -> str:
    if not changes:
        return _NO_MEASUREMENT.format(what=subject)
    rows = [
        "| measure | base | edited | parity | items used |",
        "|---|---|---|---|---|",
    ]
    for before, after in changes:
        parity = "" if after.parity is None else f"{after.parity:.4g}"
        unit = f" ({after.unit})" if after.unit else ""
        rows.append(
            f"| {escape_markdown(after.measure + unit)} | {_format_measurement(before)} | "
            f"{_format_measurement(after)} | {parity} | {after.n} of {after.n_items} |"
        )
    # Normally one level; measurements with different levels are possible, and are all named.
    levels = sorted({measurement.interval.level for change in changes for measurement in change})
    rows += ["", f"In brackets: intervals at {', '.join(f'{level:.0%}' for level in levels)}."]
    return "\n".join(rows)


def _format_measurement(measurement: Measurement) -> str:
    return f"{measurement.value:.4g} {measurement.interval}"
