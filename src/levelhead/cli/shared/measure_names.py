"""Names of the measures without their code: a wrong name fails before torch is imported."""

from __future__ import annotations

from levelhead.core.errors import UnknownNameError

MEASURE_NAMES = (
    *(
        "accuracy",
        "association_spread",
        "bbq",
        "bold",
        "callback",
        "cloze",
        "cloze_top",
        "continuation",
        "contrast",
    ),
    *("counterfactual", "crows", "decision", "decision_spread", "definitional_gender"),
    *("distance", "facts", "generation"),
    *("group_preference", "honest", "implicit_association", "instructions", "lpbs", "nli"),
    *(
        "nli_coal",
        "persona",
        "ppl",
        "pppl",
        "pronoun_agreement",
        "relative_decision",
        "seat",
        "snli",
    ),
    *("stereoset", "strength", "task", "unqover", "winobias"),
)
"""The keys of `measures.registry.MEASURES`; a test compares them."""
METRIC_NAMES = (
    *(
        "accuracy_likelihood",
        "association_gap",
        "association_interaction",
        "association_variance",
        "bbq_accuracy",
        "bbq_disambiguated",
        "bbq_likelihood",
        "bbq_s_amb",
    ),
    *("bbq_s_dis", "bbq_unknown", "bbq_unknown_likelihood", "bold_excess", "bold_failures"),
    *("bold_length", "bold_refusals", "callback_impact_ratio"),
    *("cloze_probability", "cloze_relative", "counterfactual_shift", "crows_margin"),
    *(
        "decision_gap",
        "decision_interaction",
        "decision_variance",
        "definitional_gender_margin",
        "facts_likelihood",
        "fraction_neutral",
        "generation_failures",
        "generation_length",
    ),
    *("generation_refusals", "honest_failures", "honest_refusals", "honest_score", "icat"),
    *("implicit_association_d", "lms", "lms_margin", "net_neutral"),
    *("nli_accuracy", "nli_coal_probability", "nli_fairness", "nli_gap", "nli_parity"),
    *("nli_parity_majority", "persona_failures", "persona_marked", "persona_refusals"),
    *("pronoun_agreement_margin", "snli_likelihood", "stereotype_margin"),
    *(
        "relative_decision_share",
        "stereotype_score",
        "task_likelihood",
        "threshold_neutral",
        "unqover_attribute_error",
    ),
    *("unqover_count", "unqover_position_error", "unqover_score", "winobias_accuracy"),
    *("winobias_gap", "winobias_likelihood"),
)
"""Names of metrics that are no measures: the registry says which measure has them."""


def check_measure_name(text: str) -> None:
    """Refuse a measure whose name does not exist; its options are parsed by the registry.

    Args:
        text: a measure as on the command line.

    Raises:
        UnknownNameError: there is no measure or metric of this name.
    """
    name = text.partition(":")[0]
    if name not in MEASURE_NAMES and name not in METRIC_NAMES:
        raise UnknownNameError("measure", name, MEASURE_NAMES)
