"""Table 7 of Dawkins et al. 2024, recomputed from what it prints; papers/dawkins2024/LEDGER.md."""

import csv

import numpy as np
import pytest
from assets import asset
from command import levelhead

from levelhead.measures.classification.nli_occupations import fairness
from levelhead.measures.robustness.measure_agreement import agreement_from_csv, measure_agreement
from levelhead.mitigate.evaluation.gain import PairedResamples
from levelhead.replication.dawkins2024.claims import run_claim_tests
from levelhead.stats.designs import grouped_design

MISPRINT = ("SENT", "1")
"""The one row whose eta is not accuracy x parity: .1231 is that of the row above it."""

SETTING = {
    "SENT": "sent",
    "Layer 12": "last",
    "Layer 11": "penultimate",
    "+ attn": "penultimate+attn",
}


@pytest.fixture(scope="module")
def rows():
    with asset("data", "paper-reported-results", "projective_table7.csv").open() as file:
        return list(csv.DictReader(file))


def eta_of(row):
    return fairness(float(row["accuracy"]), int(row["parity_k_of_164"]) / 164)


def corrected(rows):
    return [
        row | ({"eta": f"{eta_of(row):.4f}"} if (row["intervention"], row["settings"]) == MISPRINT
               else {})
        for row in rows
    ]  # fmt: skip


def test_eta_is_accuracy_times_parity_in_all_rows_but_one(rows):
    off = [row for row in rows if abs(eta_of(row) - float(row["eta"])) > 1e-4]
    assert len(rows) == 76
    assert [(row["intervention"], row["settings"]) for row in off] == [MISPRINT]
    assert eta_of(off[0]) == pytest.approx(0.0690, abs=5e-5)
    assert off[0]["eta"] == "0.1231"


def test_strength_and_eta_do_not_agree(rows, tmp_path):
    table = {
        str(i): {name: float(row[name]) for name in ("strength", "eta", "distance")}
        for i, row in enumerate(corrected(rows))
    }
    cell = measure_agreement(table).cell("strength", "eta")
    assert cell.n == 76
    assert cell.spearman == pytest.approx(-0.0405, abs=5e-5)  # the paper prints .040
    assert cell.interval.low < 0 < cell.interval.high
    assert cell.p.value > 0.5
    path = tmp_path / "table7.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(corrected(rows))
    assert agreement_from_csv(str(path), ["strength", "eta"]).cell("eta", "strength").spearman == (
        pytest.approx(cell.spearman)
    )
    completed = levelhead("measure", "--agreement", str(path), "-m", "strength", "-m", "eta")
    assert completed.returncode == 0
    assert "-0.041" in completed.stdout
    assert "76" in completed.stdout


def settings(row):
    return tuple(int(item) for item in row["settings"].strip("()").split(",") if item.strip())


def test_weighting_at_sent_raises_snli_accuracy_in_all_pairs(rows):
    pairs = []
    for name in dict.fromkeys(row["intervention"] for row in rows):
        subset = {
            settings(row): row for row in rows if row["intervention"] == name and row["settings"]
        }
        for key, row in subset.items():
            if key[-1] == 1:
                pairs.append((float(row["snli_acc"]), float(subset[(*key[:-1], 0)]["snli_acc"])))
    assert len(pairs) == 37
    assert all(weighted > hard for weighted, hard in pairs)


def layers_with_two(rows):
    """Interventions whose settings name two layers: layer 11, without and with attention."""
    names = dict.fromkeys(
        row["intervention"] for row in rows if row["settings"] and len(settings(row)) == 5
    )
    assert len(names) == 2
    return [{settings(row): row for row in rows if row["intervention"] == name} for name in names]


def test_one_dimension_hard_is_the_worst_for_strength_in_all_groups(rows):
    for item in layers_with_two(rows):
        groups = {key[2:] for key in item}
        assert len(groups) == 8
        for rest in groups:
            four = {key[:2]: float(item[key]["strength"]) for key in item if key[2:] == rest}
            assert max(four, key=four.get) == (0, 1)


def test_attention_helps_strength_in_exactly_24_of_32(rows):
    base, attention = layers_with_two(rows)
    helped = [float(attention[key]["strength"]) < float(base[key]["strength"]) for key in base]
    assert (sum(helped), len(helped)) == (24, 32)
    assert {key[:2] for key, helps in zip(base, helped, strict=True) if not helps} == {(0, 1)}


def test_claims_are_counted_as_the_paper_counts_them(rows):
    # One unit more or less moves no value here: intervals are not the paper's and not looked at.
    names = [
        SETTING[row["intervention"]] + " " + row["settings"].strip("()").replace(" ", "")
        for row in rows[2:]
    ]
    design = grouped_design(40)
    spread = np.random.default_rng(0).normal(size=(99, 1))

    def claim_tests(column, better):
        values = np.array([float(rows[0][column]), *(float(row[column]) for row in rows[2:])])
        noise = np.random.default_rng(1).normal(size=(99, len(values)))
        resamples = values + spread + noise
        paired = PairedResamples(values, resamples, np.zeros((0, 75)), design, 0.95, ())
        return run_claim_tests(paired, names, measure=column, better=better)

    snli, strength = claim_tests("snli_acc", "higher"), claim_tests("strength", "lower")
    weighted = snli.claim_test("weighting at sent")
    assert (weighted.improved_pairs, weighted.n_pairs) == (37, 37)
    # Table 6, but for its rounding
    increases = {"sent": 0.0391, "last": 0.0485, "penultimate": 0.0472, "penultimate+attn": 0.0721}
    for edit_point, increase in increases.items():
        claim = snli.claim_test("weighting at sent", edit_point)
        assert claim.mean_with - claim.mean_without == pytest.approx(increase, abs=1.1e-4)
    spread_at_last = snli.claim_test("weighting at sent", "last").spread
    assert spread_at_last == pytest.approx(0.0194, abs=1e-4)
    name = "attention, {} two hard dimensions at its layer"
    assert strength.claim_test(name.format("unless")).improved_pairs == 24
    assert strength.claim_test(name.format("with")).improved_pairs == 0
