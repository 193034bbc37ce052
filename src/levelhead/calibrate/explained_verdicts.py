"""Explanations of unexpected verdicts in the matrix of organisms and measures."""

from __future__ import annotations

from levelhead.calibrate.suite import PREFERENCE

NO_DOSE = "no dose"
MASKED_FAMILIES = ("bert", "roberta", "albert")
# Written after the verdicts were seen, and none was tested by itself: the documentation says so.
EXPLANATIONS: tuple[tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "these models do name one group more often in blanks, up to 9 times, though their text "
        "names both equally often: a true finding, not a false alarm",
        (NO_DOSE, "full dose", "reversed dose", "one side's targets more frequent"),
        MASKED_FAMILIES,
        (PREFERENCE,),
    ),
    (
        "in these causal models embeddings of the two groups' words are not separated: the skill "
        "is missing",
        (NO_DOSE, "full dose"),
        ("gpt2",),
        ("seat",),
    ),
    (
        "half of the items are about the group without a stereotype: half the effect",
        ("one of two groups",),
        ("bert",),
        ("stereotype_score", "stereotype_margin"),
    ),
    (
        "p .048 in one of the models, with parity in the interval: chance, over so many cells",
        ("one side's targets more frequent",),
        ("bert",),
        ("strength",),
    ),
    (
        "where one group is seldom named, its words are not separated: the skill is missing",
        ("group default",),
        ("bert",),
        ("seat",),
    ),
    (
        "eleven words per group: neither the skill nor the bias is shown in every model",
        ("one of three groups",),
        ("bert",),
        tuple(
            f"seat: {pair} group"
            for pair in ("first and second", "first and third", "second and third")
        ),
    ),
)
"""Reasons for unexpected verdicts: (reason, organisms, families, measures)."""
EXPLAINED: dict[tuple[str, str, str], str] = {
    (organism, family, measure): reason
    for reason, organisms, families, measures in EXPLANATIONS
    for organism in organisms
    for family in families
    for measure in measures
}
"""Reason for an unexpected verdict, by (organism, family, measure)."""
