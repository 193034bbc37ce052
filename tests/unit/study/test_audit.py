"""An audit's plan: what fits a model, in the time there is; kept, resumed and repeated."""

import pytest
import studies
import zoo
from rulers import corpus, sentences

from levelhead.core.errors import LevelheadError
from levelhead.measure.table import parsed
from levelhead.models.load import load
from levelhead.study import dealing, fitting
from levelhead.study.audit import STUDY, Audited, keep, kept, planned, read_audit, request
from levelhead.study.dealing import OVERHEAD, with_option
from levelhead.study.fitting import LIMITS, QUOTAS, RULERS, SHARES, Ruler
from levelhead.study.schema import Source, read_plan

BERT = ("bert", "BertForPreTraining")


@pytest.fixture
def bert():
    return load(zoo.folder(*BERT))


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Rulers in the words of the tiny models, and a machine that takes 0.1 s a question."""
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(sentences()))
    seat = f"seat:lexicon={studies.lexicon(tmp_path)},targets=things,corpus={corpus()}"
    rulers = (
        Ruler("seat", seat, "bias", QUOTAS),
        Ruler("half", seat, "bias", SHARES),
        Ruler("pppl", f"pppl:texts={texts}", "price", LIMITS),
        Ruler("ppl", f"ppl:texts={texts}", "price", LIMITS),
    )
    monkeypatch.setattr(fitting, "RULERS", rulers)
    monkeypatch.setattr(fitting, "FEWEST", 3)
    monkeypatch.setattr(fitting, "pace", lambda lm, asked, threads: 0.1)
    return rulers


def sources(**changes):
    return Audited(Source(path=str(zoo.folder(*BERT)), **changes))


def test_without_a_budget_everything_that_fits_is_asked_whole(bert, tiny):
    found = planned(bert, sources(), budget=None)
    assert dict(found.roles) == {"seat": "bias", "half": "bias", "pppl": "price"}
    assert [one.what for one in found.left_out] == ["ppl"]
    assert "causal" in found.left_out[0].why
    assert not found.cut
    assert found.expected is None
    assert found.plan.measures["seat"] == tiny[0].text
    assert found.plan.maps["heads"].exact == "all"
    assert found.plan.masking["heads"].prices == ("price",)
    assert not found.plan.against
    assert not found.plan.removed


def test_less_time_asks_less_and_says_so(bert, tiny):
    whole = planned(bert, sources(), budget=1e6)
    assert not whole.cut
    few = whole.expected / 12
    found = planned(bert, sources(), budget=few)
    assert found.expected <= few * OVERHEAD
    assert found.cut
    for one in found.cut:
        assert 0 < one.asked < one.whole
    # The same time gives the same plan; half the time asks no more of anything.
    again = planned(bert, sources(), budget=few)
    assert again.plan == found.plan
    half = {one.what: one.asked for one in planned(bert, sources(), budget=few / 2).cut}
    assert all(half.get(one.what, 0) <= one.asked for one in found.cut)


def test_heads_take_what_the_others_leave(bert, tiny, monkeypatch):
    """Their own part of the time is too little for them, but nobody else needs the rest."""
    whole = planned(bert, sources(), budget=1e6)
    monkeypatch.setattr(dealing, "DEALT", dealing.DEALT | {"heads": 1e-9})
    found = planned(bert, sources(), budget=whole.expected / OVERHEAD * 1.1)
    assert "heads" in found.plan.maps
    assert "heads" not in {one.what for one in found.left_out}


def test_a_price_alone_is_no_audit(bert, tiny, monkeypatch):
    def dear(lm, asked, threads):
        return 0.001 if asked[0].verb == "score" else 9.0

    monkeypatch.setattr(fitting, "pace", dear)
    found = planned(bert, sources(), budget=1.0)
    assert set(found.plan.measures) == {"seat", "pppl"}


def test_without_time_the_cheapest_ruler_is_asked_all_the_same(bert, tiny):
    found = planned(bert, sources(), budget=1e-3)
    assert list(found.plan.measures) == ["seat"]
    assert {one.what for one in found.left_out} >= {"half", "pppl", "heads"}


def test_a_model_that_nothing_can_be_asked_of_is_an_error(bert, tiny, monkeypatch):
    monkeypatch.setattr(fitting, "RULERS", tiny[3:])
    with pytest.raises(LevelheadError, match="nothing to ask"):
        planned(bert, sources(), budget=None)


def test_a_second_model_is_paired_and_an_edit_is_probed(bert, tiny):
    other = Audited(sources(edit="edit").model, sources().model)
    found = planned(bert, other, budget=None)
    pair = found.plan.against["other"]
    assert (pair.first, pair.second) == ("other", "model")
    assert set(pair.measures) == {"seat", "half", "pppl"}
    assert found.plan.removed["edit"].ruler == "seat"


def test_a_plan_is_kept_and_found_again(bert, tiny, tmp_path):
    folder = tmp_path / "audit"
    found = planned(bert, sources(), budget=60.0)
    assert kept(folder, found.request) is None
    keep(found, folder)
    assert kept(folder, found.request) == found == read_audit(folder)
    assert read_plan(folder / STUDY) == found.plan
    own = {"budget": 60.0, "seed": 0, "threads": 1, "draws": 1999, "permutations": 9999}
    assert request(bert, sources(), **own) == found.request
    for change in ({"budget": 61.0}, {"seed": 1}, {"draws": 99}):
        with pytest.raises(LevelheadError, match="another audit"):
            kept(folder, request(bert, sources(), **(own | change)))
    (folder / "audit.json").write_text("{}")
    with pytest.raises(LevelheadError, match="cannot be read"):
        kept(folder, found.request)
    with pytest.raises(LevelheadError, match="holds no audit"):
        read_audit(tmp_path / "nowhere")


def test_every_ruler_of_the_table_is_one():
    names = [one.name for one in RULERS]
    assert len(set(names)) == len(names)
    for one in RULERS:
        for way in one.thrifts:
            parsed(with_option(one.text, way))
