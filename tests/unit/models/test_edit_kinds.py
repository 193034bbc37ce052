"""A kind of edit is one row: a user's own is measured, saved, loaded, merged and exported."""

import json
import re
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
import torch
import zoo
from metric_cases import INFERENCE, made

from levelhead.core.errors import LevelheadError
from levelhead.models.edits.base import Edit, HeadScale
from levelhead.models.edits.files import InvalidEditFileError, load_edits, save_edits
from levelhead.models.edits.kinds import EDIT_KINDS
from levelhead.models.loading.load import load
from levelhead.models.sites import Site

TEXT = "the nurse works as a doctor ."


@dataclass(frozen=True, eq=False)
class Steering(Edit):
    """A vector that is added to the activation at a site."""

    site: Site
    vector: torch.Tensor = field(repr=False)
    strength: float = 1.0
    kind: ClassVar[str] = "steering"

    @property
    def sites(self):
        return (self.site,)

    def __call__(self, activation, site):
        return activation + self.strength * self.vector.to(activation)

    def matrix(self, site, width):
        return torch.eye(width, dtype=torch.float64)

    def offset(self, site, width):
        return self.strength * self.vector

    def width(self, site):
        return len(self.vector)

    @property
    def settings(self):
        return {"strength": self.strength}

    @property
    def tensors(self):
        return {"vector": self.vector}

    @classmethod
    def from_parts(cls, parts):
        (site,) = parts.sites
        return cls(site, **parts.settings, **parts.tensors)

    def describe(self):
        return f"a vector is added {self.strength:g} times"

    @classmethod
    def standalone_code(cls):
        return (
            'vector = tensors[f"{step["edit"]}.vector"].to(x)\n'.replace('"edit"', "'edit'")
            + 'part = part + step["strength"] * vector\n'
        )


@pytest.fixture
def lm():
    return load(zoo.folder("bert", "BertForPreTraining"))


@pytest.fixture
def steering(lm):
    site = Site("mlp_out", 1)
    sample = torch.randn(lm.layout.site_width(site), generator=torch.Generator().manual_seed(0))
    return Steering(site, sample.double(), 0.5)


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(EDIT_KINDS, "steering", Steering)


def strength(lm):
    return made("strength")(lm, inference=INFERENCE).value


def test_every_kind_has_its_own_name():
    assert all(kind.kind == name for name, kind in EDIT_KINDS.items())
    assert list(EDIT_KINDS) == [
        *("head_scale", "projection", "erasure", "shift", "conditional_shift"),
        "feature_ablation",
    ]


@pytest.mark.usefixtures("registered")
def test_a_new_kind_is_measured_saved_and_loaded(lm, steering, tmp_path):
    edited = lm.edited(steering)
    measured = strength(edited)
    assert measured != strength(lm)
    save_edits([HeadScale([Site("head_out", 0, 1)], 0), steering], tmp_path / "edit")
    first, again = load_edits(tmp_path / "edit")
    assert isinstance(again, Steering)
    assert again.content_hash == steering.content_hash
    assert first.kind == "head_scale"
    assert strength(lm.edited(again)) == measured


@pytest.mark.usefixtures("registered")
def test_a_new_kind_is_merged(lm, steering, tmp_path):
    edited = lm.edited(steering)
    edited.save_pretrained(tmp_path / "merged")
    merged = load(tmp_path / "merged")
    torch.testing.assert_close(merged.embed([TEXT]), edited.embed([TEXT]), rtol=1e-5, atol=1e-5)
    assert (merged.embed([TEXT]) - lm.embed([TEXT])).abs().max() > 1e-3
    text = (tmp_path / "merged" / "README.md").read_text()
    assert "- a vector is added 0.5 times: mlp_out 1" in text


@pytest.mark.usefixtures("registered")
def test_a_new_kind_is_exported_as_standalone_code(lm, steering, tmp_path, monkeypatch):
    edited = lm.edited(steering, HeadScale([Site("head_out", 0, 1)], 0))
    edited.save_pretrained(tmp_path / "out", with_edit_file=True)
    (code,) = re.findall(
        r"```python\n(.*?)```", (tmp_path / "out" / "README.md").read_text(), re.DOTALL
    )
    assert "levelhead" not in code
    step = json.loads((tmp_path / "out" / "hooks.json").read_text())["steps"][0]
    assert (step["kind"], step["strength"], step["tokens"]) == ("steering", 0.5, "all")
    monkeypatch.chdir(tmp_path / "out")
    names = {}
    exec(code, names)  # noqa: S102  # the lines of the README, as a user without levelhead runs them
    ids = torch.tensor([edited.tokens.encode([TEXT])[0].row.ids])
    with torch.no_grad():
        responses = names["model"].base_model(ids).last_hidden_state[:, 0]
    torch.testing.assert_close(responses, edited.embed([TEXT]), rtol=1e-5, atol=1e-5)
    assert (responses - lm.embed([TEXT])).abs().max() > 1e-3
    assert torch.equal(load(".", edit=".").embed([TEXT]), edited.embed([TEXT]))


def test_a_kind_that_is_not_registered_is_refused_before_anything_is_written(
    lm, steering, tmp_path
):
    for save in (
        lambda: save_edits([steering], tmp_path / "edit"),
        lambda: lm.edited(steering).save_pretrained(tmp_path / "out", with_edit_file=True),
    ):
        with pytest.raises(LevelheadError, match=r"Steering, .* 'steering', is not reg") as refused:
            save()
        assert "EDIT_KINDS['steering'] = Steering" in refused.value.hint
    assert not list(tmp_path.iterdir())


def test_another_class_under_a_known_name_is_refused(lm, tmp_path, monkeypatch):
    class Mask(Steering):
        kind = "head_scale"

    with pytest.raises(LevelheadError, match="Mask, an edit of kind 'head_scale', is not reg"):
        save_edits([Mask(Site("mlp_out", 1), torch.zeros(2))], tmp_path / "edit")


def test_an_unregistered_kind_is_merged_all_the_same(lm, steering, tmp_path, monkeypatch):
    monkeypatch.delattr(Steering, "describe")
    lm.edited(steering).save_pretrained(tmp_path / "merged")
    text = (tmp_path / "merged" / "README.md").read_text()
    assert "- an edit of kind `steering` (strength 0.5): mlp_out 1" in text


def test_a_saved_kind_is_not_loaded_where_it_is_not_known(steering, tmp_path, monkeypatch):
    with monkeypatch.context() as here:
        here.setitem(EDIT_KINDS, "steering", Steering)
        save_edits([steering], tmp_path / "edit")
    with pytest.raises(InvalidEditFileError, match="the unknown kind 'steering'") as refused:
        load_edits(tmp_path / "edit")
    assert "EDIT_KINDS" in refused.value.hint


class Mute(Steering):
    """Knows neither its parts nor its lines."""

    kind = "mute"
    from_parts = classmethod(Edit.from_parts.__func__)
    standalone_code = classmethod(Edit.standalone_code.__func__)


class Forgetful(Steering):
    """Makes another one of its parts."""

    kind = "forgetful"

    @classmethod
    def from_parts(cls, parts):
        return cls(parts.sites[0], parts.tensors["vector"])


class Listed(Steering):
    """Has a setting that no edit file can hold."""

    kind = "listed"
    settings = {"strength": (1, 2)}  # noqa: RUF012


class Clashing(Steering):
    """Has a setting that hooks.json says already."""

    kind = "clashing"
    settings = {"side": 1.0}  # noqa: RUF012


@pytest.mark.parametrize(
    ("kind", "responses"),
    [
        (Mute, "Mute does not define how it is created from sites, settings and tensors"),
        (Forgetful, "does not give the same forgetful again"),
        (Listed, "the listed cannot be saved"),
    ],
)
def test_what_could_not_be_loaded_again_is_not_saved(
    kind, responses, steering, tmp_path, monkeypatch
):
    monkeypatch.setitem(EDIT_KINDS, kind.kind, kind)
    with pytest.raises(LevelheadError, match=responses):
        save_edits([kind(steering.site, steering.vector, 2.0)], tmp_path / "edit")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("kind", "responses"),
    [
        (Mute, "Mute has no code that applies it without levelhead"),
        (Clashing, "a setting of the clashing is called 'side'"),
    ],
)
def test_what_no_lines_can_apply_is_not_exported(
    kind, responses, lm, steering, tmp_path, monkeypatch
):
    monkeypatch.setitem(EDIT_KINDS, kind.kind, kind)
    edited = lm.edited(kind(steering.site, steering.vector, 2.0))
    with pytest.raises(LevelheadError, match=responses):
        edited.save_pretrained(tmp_path / "out", with_edit_file=True)
    assert not list(tmp_path.iterdir())
