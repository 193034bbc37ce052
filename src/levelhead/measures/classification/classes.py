"""Classes of a classifier, resolved by name, never by number.

Published classifiers order their classes differently, and a wrong order gives a plausible value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from levelhead.core.errors import LevelheadError
from levelhead.data.catalog.readers import NLI_LABELS
from levelhead.data.tokenize import fold_case
from levelhead.measures.reductions import require_decisions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM


def match_classes(
    lm: LM, labels: tuple[str, ...] | None, expected: Sequence[str]
) -> tuple[str, ...]:
    """Match the model's classes with the expected ones, in the order of its columns.

    Args:
        lm: The classifier.
        labels: The user's names of its classes; by default the model's own, both regardless of
            case.
        expected: The names that the task needs, in any order.
    """
    model_classes = tuple(map(fold_case, lm.labels))
    names = model_classes if labels is None else tuple(map(fold_case, labels))
    _require_model_order(names, model_classes, sorted(names) == sorted(model_classes))
    if sorted(names) != sorted(expected) or len(names) != len(model_classes):
        raise LevelheadError(
            f"the classifier's classes are {', '.join(lm.labels)}: which is {', '.join(expected)}?",
            hint=f"name them in the order of its columns: labels={'+'.join(expected)}",
        )
    return names


def rename_classes(
    model_classes: tuple[str, ...],
    labels: tuple[str, ...] | None,
    fold: Callable[[str], str] = str,
) -> tuple[str, ...]:
    """Give the model's classes the user's names, in the order of its columns.

    Args:
        model_classes: The model's names.
        labels: The user's names; by default the model's.
        fold: Function whose equal results make two names equal, such as `fold_case`.
    """
    names = model_classes if labels is None else labels
    folded = list(map(fold, names))
    _require_model_order(names, model_classes, sorted(folded) == sorted(map(fold, model_classes)))
    if len(names) != len(model_classes) or len(set(folded)) != len(names):
        raise LevelheadError(
            f"{len(names)} names for {len(model_classes)} classes: {', '.join(model_classes)}",
            hint="name each of them once, in the order of the model's columns",
        )
    return names


def _require_model_order(
    names: tuple[str, ...], model_classes: tuple[str, ...], are_same: bool
) -> None:
    # A reordering of names that the model states itself can only be a mistake.
    if are_same and names != model_classes:
        raise LevelheadError(
            f"the model itself names its classes {', '.join(model_classes)}, in this order",
            hint="leave labels out",
        )


def class_probabilities(responses: Responses, classes: Sequence[str]) -> torch.Tensor:
    """`[texts, classes]` probabilities, in the order of the given classes."""
    order = cast("list[str]", list(responses.metadata["labels"]))  # type: ignore[arg-type]
    p = responses.values[:, 0, [order.index(label) for label in classes]].exp()
    require_decisions(p)
    return p


def nli_probabilities(responses: Responses) -> torch.Tensor:
    """`[pairs, 3]` probabilities of entailment, neutral and contradiction, in this order."""
    return class_probabilities(responses, NLI_LABELS)
