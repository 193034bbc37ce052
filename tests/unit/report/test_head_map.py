import pytest
from maps import head_map

from levelhead.core.errors import LevelheadError
from levelhead.report.charts.heads.head_map import cell_size, heat_map, max_abs_score
from levelhead.report.head_map_labels import component_row


def rows(spec, has):
    """The values of the first data that have a field."""
    return next(item for item in spec["datasets"].values() if item and has in item[0])


def text(spec):
    title = spec["title"]
    return " ".join([*title["text"], *title["subtitle"]])


@pytest.mark.parametrize(("layers", "heads"), [(12, 12), (30, 9), (6, 12)])
def test_a_cell_a_head_counted_from_1(layers, heads):
    result = head_map(layers, heads)
    spec = heat_map(result).to_dict()
    cells = rows(spec, "score")
    assert len(cells) == layers * heads
    assert (cells[0]["label"], cells[0]["site"]) == ("1-1", "head_out 0.0")
    assert cells[-1]["label"] == f"{layers}-{heads}"
    assert [cell["score"] for cell in cells] == [head.score for head in result.heads]
    encoding = spec["layer"][0]["encoding"]
    assert encoding["x"]["title"] == "head, counted from 1"
    assert encoding["y"]["title"] == "layer, counted from 1"
    assert encoding["y"]["scale"]["domain"] == list(range(1, layers + 1))
    assert encoding["x"]["axis"]["values"] == list(range(1, heads + 1))


def test_labels_are_thinned_where_there_is_no_room():
    spec = heat_map(head_map(48, 40, judged=False)).to_dict()
    shown = spec["layer"][0]["encoding"]["y"]["axis"]["values"]
    assert shown == [1, 5, 10, 15, 20, 25, 30, 35, 40, 45]
    assert [cell_size(head_map(n, 2, judged=False)) for n in (16, 17, 33, 49)] == [30, 20, 14, 10]


def test_colours_end_at_the_largest_score():
    result = head_map(3, 4)
    most = max(abs(head.score) for head in result.heads)
    assert max_abs_score(result) == most
    spec = heat_map(result).to_dict()
    assert spec["layer"][0]["encoding"]["color"]["scale"]["domain"][-1] == most
    still = result.model_copy(
        update={"scores": tuple(score.model_copy(update={"score": 0.0}) for score in result.scores)}
    )
    assert max_abs_score(still) == 1.0


def test_significant_heads_have_a_dot():
    spec = heat_map(head_map(6, 12)).to_dict()
    dots = spec["layer"][1]
    assert dots["mark"]["type"] == "circle"
    assert dots["transform"] == [{"filter": "datum.significant"}]
    assert "dot: its effect differs from 0 after correction" in text(spec)
    base = heat_map(head_map(6, 12, judged=False)).to_dict()
    assert len(base["layer"]) == 1
    assert "dot:" not in text(base)


def test_what_is_said():
    spec = heat_map(head_map(6, 12, model="/some/folder/of/a-model")).to_dict()
    assert spec["title"]["text"] == ["seat: heads of a-model"]
    responses = text(spec)
    assert "score: derivative of the measure by the head's mask" in responses
    assert "more of the measure is called bias (1.35 [1.15, 1.55] on the find half)" in responses
    assert "orange adds to it, purple takes from it" in responses
    assert "found on one half of the words, confirmed on the other" in responses
    assert "less of the measure is called bias" in text(heat_map(head_map(sign=-1)).to_dict())


def test_an_undetermined_sign_is_said():
    responses = text(heat_map(head_map(6, 12, sign=0)).to_dict())
    assert "SIGN UNDETERMINED: the interval contains parity 0" in responses
    assert "no head may be said to add to a bias" in responses
    assert "called bias" not in responses


def test_clipped_as_printed():
    spec = heat_map(head_map(6, 12), clip_negative=True).to_dict()
    assert spec["layer"][0]["encoding"]["color"]["scale"]["domain"][0] == 0.0
    assert "negative scores are white, as the paper prints them" in text(spec)
    assert "purple" not in text(spec)
    assert min(row["score"] for row in rows(spec, "score")) < 0  # the tooltip tells the truth


def test_a_map_without_heads_is_refused():
    parts = head_map(3, 4, parts=("mlp",))
    others = tuple(score for score in parts.scores if score.component != "heads")
    with pytest.raises(LevelheadError, match="this map has no heads") as error:
        heat_map(parts.model_copy(update={"scores": others}))
    assert error.value.hint == "locate with 'heads' among the parts"


def test_other_parts_stand_beside():
    spec = heat_map(head_map(3, 4, parts=("mlp", "embeddings"))).to_dict()
    heads, others = spec["hconcat"]
    assert heads["title"]["text"] == "heads"
    order = others["hconcat"][0]["encoding"]["y"]["sort"]
    assert order == ["mlp 1", "mlp 2", "mlp 3", "embeddings"]


def test_tooltips():
    spec = heat_map(head_map(2, 3)).to_dict()
    output = [item["title"] for item in spec["layer"][0]["encoding"]["tooltip"]]
    assert output == [
        "head, counted from 1",
        "site, counted from 0",
        "score",
        "effect of ablation",
        "its interval",
        "corrected p",
    ]
    judged, base = head_map(2, 3).heads[0], head_map(2, 3, judged=False).heads[0]
    assert component_row(base)["formatted effect"] == "not ablated"
    assert component_row(base)["formatted p"] == component_row(base)["formatted interval"] == "none"
    assert component_row(judged)["formatted interval"].endswith("], 95%")
    assert component_row(judged)["formatted p"] == f"{judged.p.adjusted:.3g}"
