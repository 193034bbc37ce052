"""What the calibration came to, as tables of text: for the terminal and for the documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from levelhead.core.calibration import ENOUGH_NULLS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.calibration import Calibrated, Calibration, Mitigated, Share, Told
    from levelhead.core.results import Estimate, Interval

EMPTY = "-"
NONE = ("skew", "frequency")
"""Plants that are no stereotype."""


class Tabled(NamedTuple):
    """A table."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def markdown(self) -> str:
        """As the documents have it."""
        lines = [f"### {self.title}", "", _line(self.columns), "|" + "---|" * len(self.columns)]
        return "\n".join([*lines, *map(_line, self.rows)]) + "\n"


def tables(found: Calibration) -> tuple[Tabled, ...]:
    """Skills, rulers, what else they answer to, locators, edits."""
    return (
        Tabled(
            "Did the models learn their language?",
            ("family", "skill", "models", "worst", "the best possible there"),
            tuple(
                (
                    one.architecture,
                    one.skill,
                    str(one.models),
                    f"{one.worst:.3f}",
                    f"{one.best:.3f}",
                )
                for one in found.skills
            ),
        ),
        Tabled(
            "Rulers: does the number follow the dose, and is it silent without one?",
            (
                "ruler",
                "family",
                "Spearman",
                "alarms over deals of labels",
                "alarms without a dose",
                "power by dose",
                "verdict",
            ),
            tuple(_ruler(one) for one in found.rulers if one.has_dose),
        ),
        Tabled(
            "Prices and Distance: no dose of what they ask for was planted",
            ("ruler", "family", "Spearman", "alarms without a dose", "verdict"),
            tuple(
                (
                    one.measure,
                    one.architecture,
                    _bounded(one.rank, one.rank_interval),
                    _alarms(one),
                    one.stated,
                )
                for one in found.rulers
                if not one.has_dose
            ),
        ),
        Tabled(
            "Confounders: the answer to them, in shares of the answer to the full dose",
            ("ruler", "family", "confounder", "share", "least and largest", "alarms"),
            tuple(
                (
                    one.measure,
                    one.architecture,
                    own.variant,
                    EMPTY if own.share is None else f"{own.share:.2f}",
                    EMPTY if own.range is None else f"{own.range[0]:.2f}, {own.range[1]:.2f}",
                    f"{own.alarms} of {own.models}",
                )
                for one in found.rulers
                for own in one.confounded
                if one.has_dose
            ),
        ),
        Tabled(
            "Locators: is the known head first?",
            (
                "family",
                "first by gradient",
                "by path",
                "by ablation",
                "greedy takes it alone",
                "models that learned through it",
                "left without it",
                "verdict",
            ),
            tuple(
                (
                    one.architecture,
                    *(_share(one.first[by]) for by in ("gradient", "path", "ablation")),
                    _share(one.alone),
                    f"{one.learned} of {one.known}",
                    f"{one.without:.1g}",
                    one.verdict,
                )
                for one in found.locators
            ),
        ),
        Tabled(
            "Locators on ordinary models: are the heads that ablation confirms ranked first?",
            (
                "family",
                "models",
                "confirmed heads of 16",
                "AUROC, gradient",
                "AUROC, path",
                "gradient and ablation, Spearman",
            ),
            tuple(
                (
                    one.architecture,
                    str(one.ordinary),
                    "{} to {}".format(*one.positive),
                    *(_estimate(one.auroc[by]) for by in ("gradient", "path")),
                    _estimate(one.agreement),
                )
                for one in found.locators
                if one.ordinary
            ),
        ),
        Tabled(
            "Edits: what they do to a bias, to none, and to fluency",
            (
                "edit",
                "family",
                "share of the bias gone",
                "change without a bias",
                "said to change it",
                "price",
                "verdict",
            ),
            tuple(
                (
                    one.edit,
                    one.architecture,
                    _estimate(one.gone),
                    _estimate(one.at_none),
                    f"{one.significant} of {one.nulls}",
                    _price(one),
                    one.verdict,
                )
                for one in found.edits
            ),
        ),
        Tabled(
            "Removed or hidden: what is said where it is known",
            (
                "family",
                "seed",
                "the only head that sees groups masked (removed)",
                "scaled to a quarter (hidden)",
                "another head masked (not removed)",
                "right, wrong, no answer",
            ),
            (
                *(
                    (one.architecture, str(one.seed), one.gone, one.less, one.there, _right([one]))
                    for one in found.removed
                ),
                *_all_removed(found.removed),
            ),
        ),
    )


def cited(one: Calibrated) -> str:
    """How a ruler did, in a line to stand beside its number."""
    follows = one.rank is not None and one.has_dose
    rank = f"Spearman {one.rank:.2f} with a planted dose" if follows else ""
    also = [
        own.variant for own in one.confounded if own.variant in NONE and 2 * own.alarms > own.models
    ]
    others = f"also answers to {' and '.join(also)}" if also else ""
    alarms = one.false_alarms if one.nulls else ""
    parts = filter(None, (rank, one.least_dose, alarms, others, *one.why))
    told = "; ".join(parts)
    return f"{one.verdict} (n = {len(one.points)} {one.architecture}-like models): {told}"


def _ruler(one: Calibrated) -> tuple[str, ...]:
    power = ", ".join(f"{own.rho:g}: {own.hits}/{own.models}" for own in one.power)
    return (
        one.measure,
        one.architecture,
        _bounded(one.rank, one.rank_interval),
        _dealt(one),
        _alarms(one),
        power or EMPTY,
        one.stated,
    )


def _price(one: Mitigated) -> str:
    shown = _estimate(one.price)
    return shown if one.price is None or one.is_price_known else f"price unknown: {shown}"


def _right(told: Sequence[Told], which: int | None = None) -> str:
    """How many answers are right, wrong and none; of one column, or of all three."""
    columns = range(3) if which is None else (which,)
    right = sum(one.right[i] for one in told for i in columns)
    wrong = sum(one.wrong[i] for one in told for i in columns)
    return f"{right}, {wrong}, {len(told) * len(columns) - right - wrong}"


def _all_removed(told: Sequence[Told]) -> tuple[tuple[str, ...], ...]:
    """The last row: every column's answers, right, wrong and none."""
    if not told:
        return ()
    return (("all", str(len(told)), *(_right(told, which) for which in range(3)), _right(told)),)


def _dealt(one: Calibrated) -> str:
    """Labels dealt anew; of few models no rate is shown, however many the deals."""
    if one.alarms is None or one.nulls >= ENOUGH_NULLS:
        return _bounded(one.alarms, one.alarms_interval)
    return f"not known (n = {one.nulls})"


def _alarms(one: Calibrated) -> str:
    """Labels as they are."""
    return f"{one.null_alarms} of {one.nulls}" if one.nulls else EMPTY


def _bounded(value: float | None, interval: Interval | None) -> str:
    if value is None:
        return EMPTY
    bounds = "" if interval is None else f" [{interval.low:.2f}, {interval.high:.2f}]"
    return f"{value:.2f}{bounds}"


def _estimate(one: Estimate | None) -> str:
    if one is None:
        return EMPTY
    if one.interval.low == one.interval.high:
        return f"{one.value:.2f} in all {one.n}"
    return f"{_bounded(one.value, one.interval)}, n {one.n}"


def _share(one: Share) -> str:
    return f"{one.hits} of {one.of} [{one.interval.low:.0%}, {one.interval.high:.0%}]"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
