"""What patching costs beside plain forward passes, how well its approximation ranks, organisms.

    python benchmarks/patch.py [--quick] [--model DIR] [--organisms N]

attribution  attribution patching of all heads and MLPs / forward passes of the same texts, given
             the responses of the model, which every measurement reads
exact        exact patching of each of them / number of sites x the forward passes
auroc        AUROC of |attribution| for the tenth of the sites with the largest exact effects
auroc_tested the same for the sites whose exact effect is significant (Holm, .05)
agreement    Spearman's correlation of attribution and exact effect
organisms    with --organisms: shares of the total effect, by construction (see `list_organisms`)
null         with --organisms: share of runs with some significant site where texts and twins are
             exchanged at random, so that no mean effect exists

Cloze (which pronouns follow an occupation), twins with an occupation of the other side, on real
weights (LEVELHEAD_ASSETS, or --model); one thread. The sides of a ratio take turns. The last line
is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from forward import ASSETS
from scipy import stats
from sklearn.metrics import roc_auc_score

os.environ.setdefault("LEVELHEAD_DATA", str(ASSETS / "data"))

from levelhead.calibrate.locators import make_full_contrast
from levelhead.calibrate.organisms.language import Language
from levelhead.calibrate.organisms.organism import TRAIN_CONFIGS, Organism, make_organism
from levelhead.core.run_context import Inference, RunContext
from levelhead.data.prompts.counteracts import make_counteracts_prompts
from levelhead.locate.effects import estimate_effects
from levelhead.locate.patching.interchange import Patch
from levelhead.locate.patching.mediation import MediationConfig, list_parts, mediate
from levelhead.locate.patching.read_patches import attribute_patches, read_patches
from levelhead.locate.patching.twins import make_twins
from levelhead.measures.cloze.cloze import Cloze
from levelhead.mitigate.heads.mask import mask_heads
from levelhead.models.loading.load import load
from levelhead.models.sites import Site
from levelhead.stats.multiple_testing import holm

INFERENCE = Inference(resamples=499, permutations=499)
COMPONENTS = ("heads", "mlp")


def fresh() -> RunContext:
    """An empty store in memory."""
    return RunContext(store=f"memory://{os.urandom(8).hex()}")


def occupation_cloze() -> Cloze:
    """The margins of pronouns in prompts of 40 occupations, without knowledge before them."""
    prompts = [row for row in make_counteracts_prompts(backgrounds=1) if row.kind == "base"]
    return Cloze(prompts=tuple(prompts), backgrounds=None, kinds=("pronoun",))


def pair_occupations(lm, measure: Cloze) -> dict[str, str]:
    """Pairs of occupations, one of either side, with as many tokens and the same article."""
    sides: dict[str, dict[tuple[int, bool], list[str]]] = {}
    for item in measure.read(lm)[0].items:
        word = item.units[0]
        key = len(lm.token_ids_of_word(word)), word[0] in "aeiou"
        sides.setdefault(item.group, {}).setdefault(key, []).append(word)
    first, second = sides.values()
    return {
        word: other
        for key, words in first.items()
        for word, other in zip(words, second.get(key, []), strict=False)
    }


def time_sides(lm, measure: Cloze, repeats: int, exact_sites: int) -> dict[str, float]:
    """CPU times of forward passes, attribution and exact patching, in turns."""
    parts = list(list_parts(lm, COMPONENTS))
    # Evenly spread over the layers: a patch in a high layer costs less than a forward pass.
    sites = parts[:: max(1, len(parts) // exact_sites)]
    words = pair_occupations(lm, measure)
    time_once(lm, measure, words, sites)  # for warming up
    spent = np.sum([time_once(lm, measure, words, sites) for _ in range(repeats)], axis=0)
    bare, attribution, exact = spent
    # Two of the forward passes are of texts and twins, which exact patching runs once.
    return {
        "attribution": round(attribution / bare, 3),
        "exact": round((exact / bare - 2) / len(sites), 3),
    }


def time_once(lm, measure: Cloze, words: dict[str, str], sites: list[Site]) -> np.ndarray:
    """CPU times of the forward passes of the items with a twin, of attribution and of patching."""
    responses = measure.read(lm)[0]
    twins = make_twins(lm, measure, responses, words)
    selected = responses.select(lambda item: item.id in twins.item_ids)
    occupations = {item.units[0] for item in selected.items}
    kept = replace(
        measure, prompts=tuple(row for row in measure.prompts if row.occupation in occupations)
    )
    patches = [Patch((site,)) for site in sites]
    times = [time.process_time()]
    for run in (
        lambda: kept.read(lm, context=fresh()),
        lambda: attribute_patches(
            lm, measure, twins, selected, components=COMPONENTS, context=fresh()
        ),
        lambda: read_patches(lm, twins, selected, patches, context=fresh()),
    ):
        run()
        times.append(time.process_time())
    return np.diff(times)


def rank_quality(lm, measure) -> dict[str, float | int | None]:
    """Attribution against exact patching, on the same items."""
    responses = measure.read(lm)[0]
    twins = make_twins(lm, measure, responses, pair_occupations(lm, measure))
    selected = responses.select(lambda item: item.id in twins.item_ids)
    shares = attribute_patches(lm, measure, twins, selected, components=COMPONENTS)
    parts = list_parts(lm, COMPONENTS)
    totals = {component: values.sum(0) for component, values in shares.items()}
    attributions = np.array(
        [float(totals[part][site.layer, site.head or 0]) for site, part in parts.items()]
    )
    patched = read_patches(lm, twins, selected, [Patch((site,)) for site in parts])
    effects = estimate_effects(
        measure,
        patched.responses_of(None),
        [patched.responses_of(i) for i in range(len(parts))],
        sign=-1,
        inference=INFERENCE,
    )
    z = effects.values / np.maximum(effects.standard_errors, 1e-300)
    p = holm(2 * stats.t.sf(np.abs(z), len(selected) - 1))
    positive = np.asarray(p) <= 0.05
    sizes = np.abs(effects.values)
    has_both = 0 < positive.sum() < len(positive)
    return {
        "auroc": round(
            float(roc_auc_score(sizes >= np.quantile(sizes, 0.9), np.abs(attributions))), 4
        ),
        "auroc_tested": round(float(roc_auc_score(positive, np.abs(attributions))), 4)
        if has_both
        else None,
        "agreement": round(float(stats.spearmanr(attributions, effects.values).statistic), 4),
        "significant": int(positive.sum()),
        "sites": len(parts),
        "items": len(selected),
    }


def share_of(effect, total) -> float:
    """Indirect effect over total effect; 0 where the exchange changes nothing."""
    return 0.0 if effect.indirect is None else effect.indirect.value / total.value


def measure_organisms(seeds: int) -> dict[str, object]:
    """Shares of the total effect where it is known by construction which paths exist."""
    known, silent, found, missed, patched = [], [], [], [], []
    for seed in range(seeds):
        organism = make_organism("gpt2", 1.0, seed=seed, visible_head=(1, 2))
        result = mediate_contrast(organism)
        shares = {effect.site: share_of(effect, result.total) for effect in result.effects}
        known.append(shares[Site("head_out", 1, 2)])
        adjacent = Organism(
            Language(1.0, "adjacent"),
            replace(TRAIN_CONFIGS["llama"], seed=seed),
            construction="no head",
        )
        planted = adjacent.planted_measures()
        lm = adjacent.load_lm()
        result = mediate(
            lm,
            planted.cloze(lm),
            twins=dict(pair.words for pair in planted.pairs),
            config=MediationConfig(COMPONENTS),
            inference=INFERENCE,
        )
        silent.append(sum(effect.component == "heads" for effect in result.mediators))
        found.append(sum(effect.component == "mlp" for effect in result.mediators))
        redundant = Organism(
            Language(1.0),
            replace(TRAIN_CONFIGS["llama"], seed=seed),
            construction="two heads",
        )
        lm, measure = redundant.load_lm(), make_full_contrast(redundant)
        value = float(measure.reduce(measure.read(lm)[0]))
        result = mediate_contrast(redundant)
        for site in (Site("head_out", 0, 1), Site("head_out", 0, 2)):
            without = measure.read(lm.edited(mask_heads([site])))[0]
            missed.append(round(1 - float(measure.reduce(without)) / value, 3))
            effect = next(effect for effect in result.effects if effect.site == site)
            patched.append((round(share_of(effect, result.total), 3), effect in result.mediators))
    return {
        "known_head_share": [round(share, 4) for share in known],
        "mlp_only_heads": silent,
        "mlp_only_mlps": found,
        "redundant_ablation_share": missed,
        "redundant_patching": patched,
        "null": null_rate(make_organism("gpt2", 1.0, seed=0)),
    }


def mediate_contrast(organism: Organism):
    """The mediation of an exchange of groups in an organism's contrast."""
    return mediate(
        organism.load_lm(),
        make_full_contrast(organism),
        twins=organism.planted_measures().lexicon,
        config=MediationConfig(COMPONENTS, has_direct_effects=True),
        inference=INFERENCE,
    )


def null_rate(organism: Organism, runs: int = 200) -> dict[str, float]:
    """Share of runs with a significant site where the direction of the exchange is random."""
    lm, measure = organism.load_lm(), make_full_contrast(organism)
    responses = measure.read(lm)[0]
    twins = make_twins(lm, measure, responses, organism.planted_measures().lexicon)
    selected = responses.select(lambda item: item.id in twins.item_ids)
    parts = list(list_parts(lm, COMPONENTS))
    forth = read_patches(lm, twins, selected, [Patch((site,)) for site in parts])
    back = read_patches(lm, twins, selected, [Patch((site,), "direct") for site in parts])
    rng = np.random.default_rng(0)
    hits = 0
    for number in range(runs):
        is_exchanged = torch.from_numpy(rng.random(len(selected)) < 0.5)
        # Of an exchanged item the twin is the text: its patched form has the site of the text.
        base = torch.where(is_exchanged[:, None, None], forth.values[1], forth.values[0])
        variants = [
            torch.where(is_exchanged[:, None, None], back.values[2 + i], forth.values[2 + i])
            for i in range(len(parts))
        ]
        estimates = estimate_effects(
            measure,
            replace(selected, values=base),
            [replace(selected, values=values) for values in variants],
            sign=1,
            inference=replace(INFERENCE, seed=number),
            n_resamples=499,
        ).to_estimates([str(site) for site in parts])
        hits += any(estimate is not None and estimate.p.adjusted <= 0.05 for estimate in estimates)
    return {"share": hits / runs, "runs": runs, "sites": len(parts)}


def main() -> None:
    """Run what the command line names, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--organisms", type=int, default=0, help="seeds of each kind")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lm = load(options.model or ASSETS / "models" / "minibert-en")
    measure = occupation_cloze()
    repeats, exact_sites = (3, 8) if options.quick else (10, 24)
    result: dict[str, object] = time_sides(lm, measure, repeats, exact_sites)
    result |= rank_quality(lm, measure)
    if options.organisms:
        result["organisms"] = measure_organisms(options.organisms)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
