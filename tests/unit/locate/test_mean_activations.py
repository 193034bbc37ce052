import pytest
import torch
from metric_cases import made, model

from levelhead.locate.attribution.ablation import AblationEdit, AblationVariant
from levelhead.locate.attribution.answer_index import index_answers
from levelhead.locate.attribution.mean_activations import compute_mean_activations
from levelhead.locate.attribution.variants import read_variants
from levelhead.measures.responses import build_query
from levelhead.models.sites import Site

SITES = [Site("head_out", 0, 1), Site("head_out", 2, 3), Site("mlp_out", 1), Site("embeddings")]


def literal(lm, measure, result):
    """Hooks of our own on a plain BERT: every token of every text, one text at a time."""
    seen = {site: [] for site in SITES}
    encoder, handles = lm.layout.model.bert.encoder, []

    def keep(site, part):
        seen[site].append(part[0])

    for site in SITES[:2]:
        dense = encoder.layer[site.layer].attention.output.dense
        columns = slice(site.head * 6, site.head * 6 + 6)
        handles.append(
            dense.register_forward_pre_hook(
                lambda _, given, site=site, columns=columns: keep(site, given[0][..., columns])
            )
        )
    handles.append(
        encoder.layer[1].output.dense.register_forward_hook(
            lambda _, given, out: keep(SITES[2], out)
        )
    )
    handles.append(
        encoder.layer[0].register_forward_pre_hook(lambda _, given: keep(SITES[3], given[0]))
    )
    try:
        requested = index_answers(lm, measure, result)
        question, _ = build_query(
            lm, requested.query_set.query_kind, requested.queries, requested.query_set.settings
        )
        with torch.no_grad():
            for row in question.query.rows:
                lm.layout.model.bert(
                    input_ids=torch.tensor([row.ids]),
                    token_type_ids=torch.tensor([row.token_types or (0,) * len(row.ids)]),
                )
    finally:
        for handle in handles:
            handle.remove()
    return {site: torch.cat(subset).double().mean(0) for site, subset in seen.items()}


@pytest.mark.parametrize("name", ["seat", "pppl"])
def test_they_are_plain_averages_over_all_tokens(name):
    """In batches that are padded: padding is not counted."""
    lm, measure = model(name, batch_size=8), made(name)
    result = measure.read(lm)[0]
    subset, expected = (
        compute_mean_activations(lm, measure, result, SITES),
        literal(lm, measure, result),
    )
    assert list(subset) == SITES
    for site in SITES:
        assert subset[site].dtype == torch.float64
        assert torch.allclose(subset[site], expected[site], atol=1e-6)


def test_of_an_edited_model_they_are_its_own():
    lm, measure = model("seat"), made("seat", contexts_per_word=2)
    masked = lm.edited(AblationEdit((SITES[0],)))
    result = measure.read(masked)[0]
    assert not compute_mean_activations(masked, measure, result, SITES[:1])[SITES[0]].any()


def test_mean_ablation_puts_them_in_place_of_every_token():
    lm, measure = model("seat"), made("seat", contexts_per_word=2)
    result = measure.read(lm)[0]
    mean_activations = compute_mean_activations(lm, measure, result, SITES)
    for site in SITES[:3]:
        varied = read_variants(
            lm, measure, result, [AblationVariant((site,), None)], means=mean_activations
        )
        literally = lm.edited(AblationEdit((site,), (mean_activations[site],)))
        again = measure.read(literally)[0]
        assert torch.allclose(varied.responses_of(0).values, again.values, atol=1e-5)
        activation = torch.randn(2, 5, len(mean_activations[site]))
        edit = AblationVariant((site,), None).make_edit(mean_activations)
        assert torch.equal(edit(activation, site)[1, 4], mean_activations[site].float())
