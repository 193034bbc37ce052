"""What the calibration came to, as tables of text: for the terminal and for the documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.core.calibration import Calibrated, Calibration, Share
    from levelhead.core.results import Estimate, Interval

EMPTY = "-"


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
    """Rulers, what else they answer to, locators, edits."""
    return (
        Tabled(
            "Rulers: does the number follow the dose, and is it silent without one?",
            (
                "ruler",
                "family",
                "Spearman",
                "false alarms",
                "power by dose",
                "least dose found",
                "verdict",
            ),
            tuple(_ruler(one) for one in found.rulers if one.expected != "none"),
        ),
        Tabled(
            "Prices and Distance: no dose of what they ask for was planted",
            ("ruler", "family", "Spearman", "alarms without a dose"),
            tuple(
                (
                    one.measure,
                    one.architecture,
                    _bounded(one.rank, one.rank_interval),
                    f"{one.null_alarms} of {one.nulls}" if one.nulls else EMPTY,
                )
                for one in found.rulers
                if one.expected == "none"
            ),
        ),
        Tabled(
            "Confounders: the answer to them, in shares of the answer to the full dose",
            ("ruler", "family", "confounder", "share", "alarms"),
            tuple(
                (
                    one.measure,
                    one.architecture,
                    own.variant,
                    EMPTY if own.share is None else f"{own.share:.2f}",
                    f"{own.alarms} of {own.models}",
                )
                for one in found.rulers
                for own in one.confounded
                if one.expected != "none"
            ),
        ),
        Tabled(
            "Locators: is the known head first, and are confirmed heads ranked first?",
            (
                "family",
                "first by gradient",
                "by path",
                "by ablation",
                "greedy takes it alone",
                "AUROC, gradient",
                "AUROC, path",
                "gradient and ablation, Spearman",
            ),
            tuple(
                (
                    one.architecture,
                    *(_share(own) for own in one.first.values()),
                    _share(one.alone),
                    *(_estimate(own) for own in one.auroc.values()),
                    _estimate(one.agreement),
                )
                for one in found.locators
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
                    _estimate(one.lowered),
                    _estimate(one.at_none),
                    f"{one.significant} of {one.models}",
                    _estimate(one.price),
                    one.verdict,
                )
                for one in found.edits
            ),
        ),
        Tabled(
            "Removed or hidden: what is said where it is known",
            ("family", "seed", "the only head that sees groups masked", "another head masked"),
            tuple((one.architecture, str(one.seed), one.gone, one.there) for one in found.removed),
        ),
    )


def cited(one: Calibrated) -> str:
    """How a ruler did, in a line to stand beside its number."""
    rank = "" if one.rank is None else f"Spearman {one.rank:.2f} with a planted dose"
    alarms = "" if one.alarms is None else f"false alarms {one.alarms:.0%}"
    told = "; ".join(filter(None, (rank, alarms, *one.why)))
    return f"{one.verdict} on {one.architecture}-like models: {told}"


def _ruler(one: Calibrated) -> tuple[str, ...]:
    power = ", ".join(f"{own.rho:g}: {own.hits}/{own.models}" for own in one.power)
    return (
        one.measure,
        one.architecture,
        _bounded(one.rank, one.rank_interval),
        _bounded(one.alarms, one.alarms_interval),
        power or EMPTY,
        EMPTY if one.smallest is None else f"{one.smallest:g}",
        "; ".join((one.verdict, *one.why)),
    )


def _bounded(value: float | None, interval: Interval | None) -> str:
    if value is None:
        return EMPTY
    bounds = "" if interval is None else f" [{interval.low:.2f}, {interval.high:.2f}]"
    return f"{value:.2f}{bounds}"


def _estimate(one: Estimate | None) -> str:
    return EMPTY if one is None else _bounded(one.value, one.interval)


def _share(one: Share) -> str:
    return f"{one.hits} of {one.of} [{one.interval.low:.0%}, {one.interval.high:.0%}]"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
