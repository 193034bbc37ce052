"""The report of an audit: whole in one file, the verdict first, and every text only text."""

import re
from html.parser import HTMLParser

import audits
import pytest
from calibrations import AllFailed
from maps import example_of, measurement

from levelhead.locate.head_map import HeadMap
from levelhead.report.audit_page.page import render_audit_page
from levelhead.report.audit_page.sections import MAX_LETTERS, truncate_text
from levelhead.report.audit_page.verdict import LIMITATIONS, compute_audit_verdict
from levelhead.report.save import render_svg, to_script_json, vega_bundle

COMMAND = "levelhead study run audit/study.json -o again"
HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\u2066{{ 7 * 7 }}'


class Seen(HTMLParser):
    """Elements, attributes and text of a page."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.texts, self.ids = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_data(self, data):
        self.texts.append(data)


def seen(audit=None, results=None):
    parser = Seen()
    text = render_audit_page(
        audit or audits.audit(), results or audits.results(), command=COMMAND
    ).decode()
    parser.feed(text)
    return text, parser


def cells(**more):
    """The measures alone: charts of heads take seconds to draw."""
    result = audits.results(**more)
    return {
        step: single for step, single in result.items() if step.startswith(("cell.", "against."))
    }


@pytest.fixture(scope="module")
def sample():
    """Pictures by what they are drawn from, each drawn once: test_save shows that the same
    specification gives the same bytes."""
    held = {}

    def svg(chart):
        key = to_script_json(chart)
        if key not in held:
            held[key] = render_svg(chart)
        return held[key]

    return svg


@pytest.fixture(autouse=True)
def drawn_once(sample, monkeypatch):
    monkeypatch.setattr("levelhead.report.audit_page.sections.render_svg", sample)


@pytest.fixture(scope="module")
def base(sample):
    """Takes 7 s: a page with every picture of an audit, once for the tests below."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("levelhead.report.audit_page.sections.render_svg", sample)
        return seen()


def test_the_verdict_comes_first_with_what_it_does_not_show(base):
    text, parser = base
    words = " ".join(parser.texts)
    assert "INCONCLUSIVE: 3 of 4 planned measures run; 1 not run: could not be measured." in words
    assert "1 of 2 measures shows significant bias." in words
    assert words.index("shows significant bias") < words.index("Every measure of bias, with its")
    for line in LIMITATIONS:
        assert line in words
    assert text.index('id="verdict"') < text.index('id="measures"')


def test_everything_asked_and_not_asked_is_told(base):
    words = " ".join(base[1].texts)
    for item in ("1.2 [1, 1.4]", "no item could be read", "it is no causal model", "377 of 1,508"):
        assert item in words
    assert "Skipped: strength (no item could be read)" in words
    assert "40 of 41 queried" in words
    assert COMMAND in words
    assert "ab" * 32 in words


def test_nothing_is_loaded_and_nothing_may_be(base):
    text, parser = base
    assert not [
        attribute
        for attribute in parser.attributes
        if attribute[1] in ("href", "src", "action")
        and not str(attribute[2]).startswith(("#", "data:image/svg+xml;base64,"))
    ]
    assert "default-src 'none'" in text
    assert len(text.encode()) < 4e6
    assert text.count(vega_bundle()) == 1


def test_every_id_stands_once_and_every_link_finds_one(base):
    _, parser = base
    assert len(parser.ids) == len(set(parser.ids))
    targets = [value[1:] for tag, name, value in parser.attributes if name == "href"]
    assert set(targets) <= set(parser.ids)


def test_every_head_can_be_reached_and_read(base):
    _, parser = base
    output = [
        value for tag, name, value in parser.attributes if tag == "button" and name == "aria-label"
    ]
    assert len(output) == 72
    assert re.fullmatch(
        r"head 1-1: score \S+, effect of ablation \S+, interval \[.*\], 95%, corrected p \S+",
        output[0],
    )


def test_heads_with_the_largest_effects_are_in_the_table_wherever_they_rank(base):
    (heads,) = (result for result in audits.results().values() if isinstance(result, HeadMap))
    differ = [head for head in heads.ranked_heads if head.is_significant]
    differ.sort(key=lambda single: -abs(single.effect))
    wanted = {
        item.label for item in (*heads.ranked_heads[:5], *heads.ranked_heads[-5:], *differ[:10])
    }
    assert len(wanted) > 10
    assert set(re.findall(r"<bdi>(\d+-\d+)</bdi></th>", base[0])) == wanted


def test_texts_of_others_make_no_element(base):
    words = (HOSTILE, "w" * 100_000, "is", "here", "women", "there")
    subset = audits.results(
        HOSTILE,
        **{
            "example.heads": example_of(words=words),
            "cell.audit.model.seat": measurement(1.0, model=HOSTILE).model_copy(
                update={"notes": (HOSTILE,), "direction": HOSTILE}
            ),
        },
    )
    text, parser = seen(audits.audit(HOSTILE), subset)
    _, before = base
    assert set(parser.tags) == set(before.tags)
    assert parser.tags.count("script") == before.tags.count("script")
    assert {name for _, name, _ in parser.attributes} == {name for _, name, _ in before.attributes}
    assert "alert(1)" in " ".join(parser.texts)
    assert "49" not in re.findall(r"alert\(2\)>\W*(\d+)", " ".join(parser.texts))
    assert "w" * 10_000 not in re.sub(r'<script type="application/json".*?</script>', "", text)


def test_long_texts_are_cut_and_say_so():
    assert truncate_text("x" * MAX_LETTERS) == "x" * MAX_LETTERS
    assert truncate_text("x" * 100_000).endswith("… (100,000 characters)")


def test_the_same_audit_gives_the_same_bytes(base):
    assert seen()[0] == base[0]


def test_another_model_stands_beside():
    subset = cells(**{"against.other.seat": audits.comparison()})
    text, parser = seen(results=subset)
    words = " ".join(parser.texts)
    assert "First: this model. Second: the edited model." in words
    assert "seat: 1.2 -> 0.8, difference -0.4 [-0.5, -0.3]: lower" in words
    assert text.count('id="differences"') == 1


def test_what_a_run_did_not_come_to_is_not_left_out():
    full = cells()
    partly = {
        step: single for step, single in full.items() if not step.endswith((".crows", ".pppl"))
    }
    result = compute_audit_verdict(audits.audit(), partly)
    assert [measure.name for measure in result.measures] == [
        name for name, _ in audits.audit().roles
    ]
    assert "2 not run: not reached" in result.headline
    words = " ".join(seen(audits.audit(omitted=(), truncated=()), partly)[1].texts)
    assert "the run ended before this measure" in words
    assert "was queried in full" not in words


def test_a_measure_that_failed_validation_is_marked(monkeypatch):
    all_failed = AllFailed()
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", lambda: all_failed)
    text, parser = seen(results=cells())
    assert "strength †" in parser.texts or "seat †" in parser.texts
    assert any(text.startswith("misses (bert, n = ") for text in parser.texts)
    assert "No measure could show whether this model is biased." in text
    assert "2 inconclusive: failed validation on models with planted bias." in text
    assert "Spearman 0.12 with a planted dose; false alarms not known (n = 10 null models)" in text
    assert {(family, causal) for _, family, causal in all_failed.asked} == {("bert", False)}


def test_a_measure_that_failed_is_marked_where_two_models_are_compared(monkeypatch):
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", AllFailed)
    subset = cells(**{"against.other.seat": audits.comparison()})
    text, _ = seen(results=subset)
    item_by_item = text.partition('id="against"')[2]
    assert "seat †" in item_by_item


def test_what_was_added_stands_apart_from_the_core_suite():
    larger = audits.audit(roles=(*audits.ROLES, ("crows-larger", "bias")))
    more = {"cell.more.model.crows-larger": audits.judged("crows", 0.9, 0.001, population=1508)}
    text, _ = seen(larger, cells(**more))
    assert text.index("Core suite: 3 of 4 planned") < text.index("Beyond the core suite; p is")
    assert text.index("Beyond the core suite; p is") < text.rindex("40 of 1,508 (3%)")


def test_a_measure_that_was_not_tried_is_said_to_be(monkeypatch):
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", lambda: None)
    _, parser = seen(results=cells())
    assert "not tried" in parser.texts
    assert not any("†" in text for text in parser.texts)
