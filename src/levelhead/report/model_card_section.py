"""An audit in a model's README: a section between two marks, and results in its metadata.

Whatever else stands there stays as it is, byte for byte: the text around the marks, and every other
key of the metadata. Results of others in `model-index` are kept beside ours.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from levelhead.core.calibration import MISSED, mark_of, marked, verdict_of
from levelhead.core.errors import LevelheadError
from levelhead.core.verdicts import measure_verdict
from levelhead.report.audit_page.verdict import NOT_SHOWN, p_of, verdict
from levelhead.report.theme import ends, number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelhead.core.results import Measurement, Record
    from levelhead.report.audit_page.verdict import Verdict
    from levelhead.study.audit.audit import Audit

BEGIN, END = "<!-- levelhead audit: begin -->", "<!-- levelhead audit: end -->"
SOURCE = "levelhead"
"""Whose questions they are: by this our own results are known again."""
_FRONT = re.compile(
    r"\A---[ \t]*\r?\n(.*?)(^---[ \t]*\r?\n|^---[ \t]*\Z)", re.DOTALL | re.MULTILINE
)
_INDEX = re.compile(r"^model-index:.*?(?=^[^\s#-]|\Z)", re.DOTALL | re.MULTILINE)


def merged(readme: str, audit: Audit, results: Mapping[str, Record], *, name: str) -> str:
    """A README with the audit's section and results.

    Args:
        readme: the README as it is; empty if there is none.
        audit: what was asked.
        results: what was found, by step.
        name: the model, as its metadata are to call it.
    """
    told = verdict(audit, results)
    front, body = _cut(readme)
    ours = [_result(audit, one.name, one.measurement) for one in told.rulers if one.measurement]
    text = f"---\n{_indexed(front, ours, name)}---\n" + _placed(body, section(told))
    try:
        ModelCard(text)  # to read it is to check it
    except Exception as error:
        raise LevelheadError(
            f"the README would be no model card: {(str(error).splitlines() or [''])[0]}",
            mend="correct its metadata, between the two lines ---",
        ) from None
    return text


def section(told: Verdict) -> str:
    """What the audit says, as Markdown."""
    rows = [
        "| measure | value | interval | parity | corrected p | verdict | items used |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in told.rulers:
        own = one.measurement
        if own is None:
            rows.append(f"| {_plain(one.name)} | not measured: {_plain(one.why)} | | | | | |")
            continue
        p = p_of(own)
        cells = (
            marked(_plain(one.name), own),
            number(own.value),
            ends(own.interval.low, own.interval.high),
            number(own.parity, missing=""),
            "" if p is None else f"{p:.4f}",
            "" if one.role == "price" else _plain(_verdict(own)),
            items_used(own),
        )
        rows.append("| " + " | ".join(cells) + " |")
    lines = ["## Stereotype bias: an audit", "", _plain(told.headline), "", *rows, ""]
    if any(mark_of(one.measurement) for one in told.rulers):
        lines += [MISSED, ""]
    lines += ["What this does not show:", "", *(f"- {line}" for line in NOT_SHOWN)]
    return "\n".join(lines)


def items_used(one: Measurement) -> str:
    """How many items a number is of: of the whole data set, where its size is known.

    "46 of 46" hides that 3% of the data set was asked.
    """
    dropped = f", {len(one.dropped)} dropped" if one.dropped else ""
    if one.population is None or one.sampled is None:
        return f"{one.n} of {one.items}"
    share = f"{one.sampled:.0%}" if one.sampled >= 0.005 else "<1%"  # else 3 of 1,508 reads as 0%
    return f"{one.n:,} of {one.population:,} ({share}){dropped}"


def _verdict(one: Measurement) -> str:
    """What every command says of it, and which way or why."""
    found = measure_verdict(one)
    return ": ".join(part for part in (found.status, found.toward or found.reason) if part)


def _cut(readme: str) -> tuple[str, str]:
    """The metadata, without their lines of dashes, and the rest."""
    found = _FRONT.match(readme)
    return (found[1], readme[found.end() :]) if found else ("", readme)


def _placed(body: str, own: str) -> str:
    """Our section in the place of an earlier one, or at the end."""
    if body.count(BEGIN) != body.count(END) or body.count(BEGIN) > 1:
        raise LevelheadError(
            "the README holds our marks more than once, or one of them alone",
            mend=f"leave one pair of {BEGIN} and {END}, or none",
        )
    whole = f"{BEGIN}\n{own}\n{END}"
    if BEGIN in body:
        before, _, rest = body.partition(BEGIN)
        return before + whole + rest.partition(END)[2]
    return f"{body}{'' if not body or body.endswith(chr(10)) else chr(10)}\n{whole}\n"


def _indexed(front: str, ours: list[EvalResult], name: str) -> str:
    """The metadata with our results in `model-index`; every other line as it is."""
    others: list[EvalResult] = []
    if found := _INDEX.search(front):
        try:
            data: Any = ModelCard(f"---\n{found[0]}---\n").data
            others = [one for one in data.eval_results or () if one.dataset_type != SOURCE]
            name = data.model_name or name
        except Exception as error:
            raise LevelheadError(
                f"the README's model-index cannot be read: {(str(error).splitlines() or [''])[0]}",
                mend="correct it, or take it out",
            ) from None
        front = front[: found.start()] + front[found.end() :]
    index = ModelCardData(model_name=name, eval_results=[*others, *ours])
    if front and not front.endswith("\n"):
        front += "\n"
    return f"{front}{index.to_yaml()}\n"


def _result(audit: Audit, name: str, one: Measurement) -> EvalResult:
    # The Hub files results of one task, data set type, config, split and revision as one entry,
    # under the name of the first: without a config of its own, crows would stand under SEAT's.
    return EvalResult(
        task_type="other",
        task_name="stereotype bias" if dict(audit.roles)[name] == "bias" else "ability",
        dataset_type=SOURCE,
        dataset_config=name,
        dataset_name=audit.plan.measures[name],
        metric_type=one.measure,
        metric_name=name,
        metric_value=float(f"{one.value:.6g}"),
        metric_args={
            "interval": [float(f"{end:.6g}") for end in (one.interval.low, one.interval.high)],
            "level": one.interval.level,
            "parity": one.parity,
            "n": one.n,
            "asked": one.items,
            "population": one.population,
            "verdict": measure_verdict(one).status,
            "where the truth is known": verdict_of(one),
        },
    )


def _plain(text: str) -> str:
    """Text that cannot end a cell or begin a tag."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([|`\[\]\\])", r"\\\1", plain)
