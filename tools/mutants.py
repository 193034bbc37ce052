"""Break each formula in one place; the test that is named for it must catch it.

    python tools/mutants.py [--quick | --stale | --only PART]

A mutant is one piece of one file replaced. Every test must pass on the code as it is and fail on
its mutant. A piece that does not stand in its file exactly once is an error: the table is stale.
Mutants of a test are tried together, each in a fork of this process on a copy of the package. What
the test imported of others' packages on the code as it is, this process then imports, too: most of
the time of a mutant was imports.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import shutil
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "levelhead"
UNIT = "tests/unit/measures"


class Mutant(NamedTuple):
    """A piece of a file, what stands in its place, and the test that must notice."""

    file: str
    old: str
    new: str
    test: str
    quick: bool = False


NLI = f"{UNIT}/test_nli_occupations.py::test_every_formula_is_that_of_a_literal_loop"
MAJORITY = f"{UNIT}/test_nli_occupations.py::test_the_majority_is_of_labels_not_of_probabilities"
NAMES = f"{UNIT}/test_nli_occupations.py::test_classes_go_by_name_not_by_place"
SNLI = f"{UNIT}/test_nli_occupations.py::test_snli_clusters_by_premise_and_shows_chance"
LPBS = f"{UNIT}/test_lpbs.py::test_it_is_that_of_a_literal_loop"
COMPAT = f"{UNIT}/test_lpbs.py::test_the_published_mistake_can_be_repeated"
BY_HAND = f"{UNIT}/test_stereoset.py::test_scores_are_means_over_terms_by_hand"
TIES = f"{UNIT}/test_stereoset.py::test_a_tie_counts_as_published_or_half"
TWICE = f"{UNIT}/test_stereoset.py::test_a_term_drawn_twice_counts_twice"
PUT = f"{UNIT}/test_stereoset.py::test_words_are_scored_as_in_a_literal_loop"
SWAPPED = f"{UNIT}/test_counterfactual.py::test_every_number_is_that_of_a_literal_loop"
PLANTED = f"{UNIT}/test_counterfactual.py::test_the_planted_flip_rate_lies_in_the_interval"
WRITTEN = f"{UNIT}/test_continuation.py::test_every_number_is_that_of_a_literal_loop"
EARLIER = f"{UNIT}/test_continuation.py::test_the_group_whose_word_comes_first_counts"
ONE_TOKEN = f"{UNIT}/test_continuation.py::test_one_token_has_the_exact_mass_of_the_next_token"
DRAWN = (
    "tests/unit/models/test_sampling.py::test_each_token_is_drawn_from_the_models_own_probabilities"
)
SEAT = f"{UNIT}/test_seat.py::test_it_is_the_literal_formula"
SENTENCES = f"{UNIT}/test_seat.py::test_a_published_test_is_of_sentences"
PAIRS = f"{UNIT}/test_all_group_pairs.py::test_all_pairs_are_measured_and_corrected_together"
RANKS = f"{UNIT}/test_measure_agreement.py::test_it_is_scipys_spearman_ties_and_all"
COVERS = f"{UNIT}/test_measure_agreement.py::test_the_interval_covers"
VERSES = f"{UNIT}/test_multiverse.py::test_specifications_without_a_number_do_not_hold"
CROWS = f"{UNIT}/test_crows.py::test_margins_are_those_of_the_literal_loop"
STRENGTH = f"{UNIT}/test_strength_and_distance.py::test_strength_is_the_mean_of_the_largest_s"
CLOZE = f"{UNIT}/test_cloze.py::test_the_margin_is_half_the_difference_between_occupations"
PPPL = f"{UNIT}/test_perplexity.py::test_pppl_is_that_of_the_literal_loop"

LOCATE = "tests/unit/locate"
ADDS = f"{LOCATE}/test_effects.py::test_words_are_redrawn_and_the_formula_computed_anew"
ERRORS = f"{LOCATE}/test_effects.py::test_errors_and_intervals_are_students"
WOLF = f"{LOCATE}/test_effects.py::test_p_values_are_romano_and_wolfs"
MEANS = f"{LOCATE}/test_answer_index.py::test_a_word_is_the_mean_over_its_contexts"
DEALT = f"{LOCATE}/test_split.py::test_words_are_dealt_alternately_within_their_side"
RANDOM = f"{LOCATE}/test_random_heads.py::test_p_counts_the_random_sets_that_do_as_much"
HALVES = (
    f"{LOCATE}/test_locate.py::test_the_gradient_ranks_on_one_half_and_ablation_judges_on_the_other"
)
NUMBERS = f"{LOCATE}/test_describe.py::test_the_numbers_by_hand"

MITIGATE = "tests/unit/mitigate"
PLANTED_DIRECTION = (
    f"{MITIGATE}/test_subspace.py::test_the_planted_direction_is_found_and_centring_loses_it"
)
BOTH_SIGNS = f"{MITIGATE}/test_subspace.py::test_the_shares_are_those_of_both_signs_together"
AMONG = f"{MITIGATE}/test_placebo_test.py::test_a_gain_is_compared_with_those_of_placebos"
SAME = f"{MITIGATE}/test_placebo_test.py::test_placebos_that_do_what_the_edit_does_are_no_control"
TEMPERED = (
    f"{MITIGATE}/test_confidence_control.py"
    "::test_the_temperature_makes_the_base_as_unsure_as_the_edit"
)
WITHIN = f"{MITIGATE}/test_placebo_edits.py::test_shuffled_pairs_have_nothing_of_the_groups"
ALONE = "tests/contract/test_sweep.py::test_the_last_layer_is_run_for_the_first_token_alone[bert]"
ONCE = "tests/contract/test_sweep.py::test_each_layer_input_is_computed_once"

EXPLAIN = "tests/unit/explain"
AGAINST = f"{UNIT}/test_battery.py::test_changes_are_against_the_same_occupation_s_base"
VERDICTS = f"{EXPLAIN}/test_contrasts.py::test_verdicts"
FLIPS = f"{EXPLAIN}/test_contrasts.py::test_occupations_flip_where_the_preferred_group_changes"
EACH = f"{EXPLAIN}/test_factorial.py::test_each_thing_by_itself"
SLOPE = f"{EXPLAIN}/test_labour_statistics.py::test_the_slope_on_shares_is_found"
SIDES = f"{EXPLAIN}/test_paper_claims.py::test_a_side_that_is_not_told_is_not_claimed"
NET = f"{MITIGATE}/test_choose_prefix.py::test_what_unrelated_sentences_do_is_taken_off_the_gain"
NEARER = (
    f"{MITIGATE}/test_choose_prefix.py::test_a_gain_is_towards_parity_whichever_side_it_ends_on"
)

MUTANTS = (
    # Counterexamples
    Mutant("measures/cloze/battery.py", "return self.margin - self.base_margin",
           "return self.base_margin - self.margin", VERDICTS),
    Mutant("measures/cloze/battery.py", "[self.base[item.units[0]] for item in self.items]",
           "[0 for item in self.items]", AGAINST, True),
    Mutant("explain/prompting/contrasts.py",
           "change + EQUIVALENCE_SHARE * before", "change + 2 * before", VERDICTS),
    Mutant("explain/prompting/contrasts.py", "answers.margin[answers.base[name]] < 0",
           "answers.margin[answers.base[name]] > 0", FLIPS),
    Mutant("explain/prompting/factorial.py", "changes[:, is_first].mean(1) - changes[:, ~is_first]",
           "changes[:, ~is_first].mean(1) - changes[:, is_first]", EACH),
    Mutant("explain/prompting/labour_statistics.py",
           "(spread**2).sum()", "(spread**2).mean()", SLOPE),
    Mutant("explain/prompting/paper_claims.py", "base.interval.low <= 0 or 0 in margin.interval",
           "base.interval.low <= 0", SIDES),
    Mutant("mitigate/prompting/choose_prefix.py",
           "for source in (control, prefix)", "for source in (prefix, control)",
           NET),
    Mutant("mitigate/prompting/choose_prefix.py",
           "return before.abs() - now.abs()\n\n\ndef _report_selection",
           "return before - now\n\n\ndef _report_selection", NEARER),
    # Projections
    Mutant("mitigate/projection/subspace.py", "    if centered:\n", "    if not centered:\n",
           PLANTED_DIRECTION, True),
    Mutant("mitigate/projection/subspace.py",
           "values**2 / (values**2).sum()", "values / values.sum()",
           BOTH_SIGNS),
    Mutant("mitigate/controls/placebo_test.py",
           "(reached + 1) / (len(placebos) + 1)", "reached / len(placebos)",
           AMONG),
    Mutant("mitigate/controls/placebo_test.py",
           "exceeds_placebos\n        and item_correlation < SAME_EFFECT_CORRELATION\n        and",
           "exceeds_placebos and",
           SAME),
    Mutant("mitigate/controls/confidence_control.py",
           "return before / after", "return after / before", TEMPERED),
    Mutant("mitigate/controls/placebo_edits.py",
           "differences.append(side - side[", "differences.append(first - side[",
           WITHIN),
    Mutant("models/forward/last_layer_cache.py",
           "directions, alpha=-1)",
           "directions, alpha=1)",
           ALONE),
    Mutant("models/forward/forward_pass.py",
           "layer - 1 if site.stream == \"block_out\" else layer", "layer",
           ONCE),
    # Heads
    Mutant("locate/effects.py",
           "values=full_values[0] - full_values[1:]",
           "values=full_values[1:] - full_values[0]",
           ADDS,
           True),
    Mutant("stats/paired_effects.py", "np.sqrt(factor.n_units / factor.df))\n\n    @property",
           "np.sqrt(factor.df / factor.n_units))\n\n    @property", ERRORS),
    Mutant("stats/paired_effects.py", "stats.t.isf(np.exp(tail), factor.df)", "np.abs(z)", WOLF),
    Mutant("locate/score_heads.py",
           "estimate_half_effects(\n            ablation_responses, split.confirmation, "
           "bias_sign, \"confirm\"\n        )",
           'estimate_half_effects(ablation_responses, split.discovery, bias_sign, "confirm")',
           HALVES),
    Mutant("locate/attribution/answer_index.py",
           "1 / count[owner].double()", "count[owner].double()", MEANS),
    Mutant("locate/validation/split.py",
           "discovery_units.update(order[::2])",
           "discovery_units.update(order)",
           DEALT),
    Mutant("locate/validation/random_heads.py",
           "(n_as_large + 1) / (n_random_sets + 1)",
           "n_as_large / n_random_sets",
           RANDOM),
    Mutant("locate/describe.py", "mass**2 / float", "mass / float", NUMBERS),
    # Signs
    Mutant("measures/likelihood/lpbs.py",
           "template_scores.append(visible - prior)",
           "template_scores.append(prior - visible)",
           LPBS),
    Mutant("measures/likelihood/stereoset.py",
           "above = (margin > 0)", "above = (margin < 0)", BY_HAND, True),
    Mutant("measures/embedding/seat.py", ".mean(0) - unit(b", ".mean(0) + unit(b", SEAT),
    Mutant("measures/next_sentence/strength.py",
           "- p[:, 2] + p[:, 3]", "+ p[:, 2] - p[:, 3]", STRENGTH),
    Mutant("measures/likelihood/crows.py",
           "return scores[:, 0] - scores[:, 1]\n\n    def _rounded_margins",
           "return scores[:, 1] - scores[:, 0]\n\n    def _rounded_margins",
           CROWS),
    Mutant("measures/reductions.py", "(first.mean() - second.mean()) / 2",
           "(second.mean() - first.mean()) / 2", CLOZE),
    Mutant("measures/generation/continuation.py",
           "return (first - second) / 2", "return (second - first) / 2",
           WRITTEN),
    Mutant("measures/classification/counterfactual.py",
           "item.group == first for", "item.group != first for",
           SWAPPED),
    Mutant("measures/classification/counterfactual.py", "column_difference(metric.aggregate, 0, 1)",
           "column_difference(metric.aggregate, 1, 0)", PLANTED),
    # Degrees of freedom, logarithms, factors
    Mutant("measures/reductions.py", "spread = pooled.std(correction=1)",
           "spread = pooled.std(correction=0)", LPBS),
    Mutant("measures/reductions.py", "spread = pooled.std(correction=1)",
           "spread = pooled.std(correction=0)", SEAT),
    Mutant("measures/likelihood/lpbs.py", "template_scores.append(visible - prior)",
           "template_scores.append((visible - prior) / 0.6931)", LPBS),
    Mutant("measures/utility/perplexity.py", "torch.exp(-resampled", "torch.exp2(-resampled", PPPL),
    Mutant("measures/classification/counterfactual.py",
           ".abs().sum(1) / 2", ".abs().sum(1)", SWAPPED),
    Mutant("measures/classification/nli_occupations.py", ".abs().sum(1) / 2", ".abs().sum(1)", NLI),
    Mutant("models/generation/sampler.py", "/ config.temperature", "* config.temperature", DRAWN),
    # What is left out, or put in its place
    Mutant("measures/likelihood/lpbs.py",
           "template_scores.append(visible - prior)", "template_scores.append(visible)", LPBS),
    Mutant("models/queries/cloze.py", "position=masked_start - 1", "position=masked_start", COMPAT),
    Mutant("measures/likelihood/stereoset.py", "return (total[is_drawn] / count[is_drawn]).mean()",
           "return resampled.mean()", BY_HAND),
    Mutant("measures/likelihood/stereoset.py", 'torch.from_numpy(resample.unit_numbers("terms"))',
           "torch.from_numpy(resample.design.factors[0].unit[resample.items])", TWICE),
    Mutant("measures/likelihood/stereoset.py",
           "torch.minimum(ss, 100 - ss)", "torch.maximum(ss, 100 - ss)",
           BY_HAND),
    Mutant("measures/likelihood/stereoset.py",
           "(values[:, 1:] > 0)", "(values[:, 1:2] > 0)", BY_HAND),
    Mutant("measures/likelihood/stereoset.py", "return above if self.ties == \"anti\"",
           "return above if self.ties == \"half\"", TIES),
    Mutant("measures/likelihood/stereoset.py",
           "scores = (first / second).log()", "scores = first.log()", PUT),
    Mutant("models/queries/cloze.py",
           "*row.ids[end:])\n            rows.append(\n                TokenRow(\n             "
           "       ids, row.token_types and",
           "*row.ids[position + 1:])\n            rows.append(TokenRow(ids, row.token_types and",
           PUT),
    Mutant("measures/classification/nli_occupations.py",
           "(lowest == highest)",
           "(lowest <= highest)",
           NLI),
    Mutant("measures/classification/nli_occupations.py",
           "return accuracy * parity", "return accuracy + parity", NLI, True),
    Mutant("measures/classification/nli_occupations.py",
           "votes + 1e-6 * p", "1e-6 * votes + p", MAJORITY),
    Mutant("measures/classification/nli_occupations.py",
           "p[:, NEUTRAL] > self.tau", "p[:, NEUTRAL] < self.tau", NLI),
    Mutant("measures/classification/occupation_values.py",
           "(item.units[0], item.kind)", "(item.units[0], item.kind, item.id)",
           NLI),
    Mutant("measures/generation/continuation.py", "return (first - second) / (first + second)",
           "return (first - second) / len(counts)", WRITTEN),
    Mutant("measures/generation/continuation.py", "(first < second)", "(first > second)", EARLIER),
    Mutant("models/generation/sampler.py",
           "p = (scores.double() / config.temperature).softmax(-1)",
           "p = (scores.double() / config.temperature).softmax(-1).sqrt()", ONE_TOKEN),
    Mutant("measures/robustness/measure_agreement.py", "stats.rankdata(column)", "column", RANKS),
    Mutant("measures/robustness/measure_agreement.py",
           "rho**2 / 2) / (n - 3))", "rho**2 / 2) / (n + 30))", COVERS),
    Mutant("measures/robustness/multiverse.py",
           "else holding / total", "else holding / len(values)", VERSES),
    # Labels
    Mutant("measures/classification/classes.py",
           "[order.index(label) for label in classes]", "[0, 1, 2]", NAMES, True),
    Mutant("measures/utility/label_accuracy.py",
           "predicted == self.true_classes(responses)",
           "predicted != self.true_classes(responses)",
           SNLI),
    Mutant("measures/classification/counterfactual.py",
           "(predicted[:, 0] != predicted[:, 1])", "(predicted[:, 0] == predicted[:, 1])",
           SWAPPED, True),
    Mutant("measures/classification/group_rates.py",
           '"TPR": has_label, "FPR": ~has_label', '"TPR": ~has_label, "FPR": has_label',
           SWAPPED),
    Mutant("measures/classification/group_rates.py",
           "return totals[0] / totals[1]", "return totals[1] / totals[0]", SWAPPED),
    # Units and families
    Mutant("measures/embedding/seat.py",
           "(f\"{side}: {word}\",), side)", "(f\"{side}: {text}\",), side)",
           SENTENCES),
    Mutant("measures/utility/snli.py", "(pair.first,), pair.label", "(pair.id,), pair.label", SNLI),
    Mutant("measures/inference.py", "{\"adjusted\": next(adjusted),",
           '{"adjusted": min(result.p.value, next(adjusted)),', PAIRS),
)  # fmt: skip


def mutated(mutant: Mutant, folder: Path) -> Path:
    """A copy of the package with one piece replaced; returns what to put on the path."""
    shutil.copytree(PACKAGE, folder / "levelhead", ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "levelhead" / mutant.file
    path.write_text(path.read_text("utf-8").replace(mutant.old, mutant.new), "utf-8")
    return folder


def stale() -> list[str]:
    """Pieces that do not stand in their file exactly once."""

    def times(single: Mutant) -> int:
        path = PACKAGE / single.file
        return path.read_text("utf-8").count(single.old) if path.exists() else 0

    return [
        f"{mutant.file}: {mutant.old!r} stands {times(mutant)} times"
        for mutant in MUTANTS
        if times(mutant) != 1
    ]


def others() -> list[str]:
    """Modules that are imported and no part of this repository."""
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    away = sysconfig.get_path("purelib"), sysconfig.get_path("stdlib")
    return [name for name, file in files.items() if file and file.startswith(away)]


def passes(test: str, path: Path, imports: Path | None = None) -> bool:
    """Run one test in a fork, the package taken from a path; an error of pytest ends it all.

    Names of what it imported are written to `imports`.
    """
    child = os.fork()
    if not child:
        sys.path.insert(0, str(path))
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        import pytest

        code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", test])  # the fast tier's sizes
        if imports is not None:
            imports.write_text("\n".join(others()), "utf-8")
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (0, 1):
        raise SystemExit(f"pytest could not run {test}: exit {code}")
    return code == 0


def passes_as_it_is(test: str) -> bool:
    """Whether a test passes without a mutant; imports what it imported, for its mutants."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        imports = Path(folder) / "imports"
        if not passes(test, PACKAGE.parent, imports):
            return False
        for name in imports.read_text("utf-8").split():
            # What cannot be imported alone, the forks import as the test does.
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    return True


def survivors(test: str, mutants: Sequence[Mutant]) -> Iterator[tuple[Mutant, bool]]:
    """Each mutant of a test, and whether it survived."""
    for mutant in mutants:
        with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
            yield mutant, passes(test, mutated(mutant, Path(folder)))


def main() -> int:
    """Try them all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a fixed slice")
    parser.add_argument("--only", default="", metavar="PART", help="of a file or a named test")
    parser.add_argument("--stale", action="store_true", help="only whether the pieces are there")
    given = parser.parse_args()
    os.chdir(ROOT)
    if wrong := stale():
        print("\n".join(wrong))
        return 1
    if given.stale:
        return 0
    import torch

    torch.set_num_threads(1)
    chosen = [mutant for mutant in MUTANTS if mutant.quick or not given.quick]
    chosen = [item for item in chosen if given.only in item.test or given.only in item.file]
    began, caught = time.monotonic(), 0
    for test in dict.fromkeys(item.test for item in chosen):
        if not passes_as_it_is(test):
            print(f"fails on the code as it is: {test}")
            return 1
        for single, survived in survivors(test, [item for item in chosen if item.test == test]):
            caught += not survived
            print(
                f"{'survived' if survived else 'caught':<9} {single.file}: {single.new!r:.70}",
                flush=True,
            )
    print(f"{caught} of {len(chosen)} caught, {time.monotonic() - began:.0f} s")
    return caught < len(chosen)


if __name__ == "__main__":
    sys.exit(main())
