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
    assert "Gender bias detected by 1 of 3 tests; 1 found none; 1 not run." in words
    order = ("Gender bias detected by", "What was detected", "What to do next", *LIMITATIONS)
    places = [words.index(part) for part in order]
    assert places == sorted(places)
    assert text.index('id="verdict"') < text.index('id="questions"') < text.index('id="limits"')


def test_everything_asked_and_not_asked_is_told(base):
    words = " ".join(base[1].texts)
    for item in ("no item could be read", "it is no causal model", "377 of 1,508", "other data"):
        assert item in words
    for number in (
        "1.2 points",
        "[1,\u00a01.4]",
        "40 of 41 queried",
        "could not be measured: no item",
    ):
        assert number in words
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
            "cell.audit.model.seat": audits.with_items(
                measurement(1.0, model=HOSTILE).model_copy(
                    update={"notes": (HOSTILE,), "direction": HOSTILE}
                ),
                text=HOSTILE.replace("{", "{{").replace("}", "}}") + "{} {}",
                group=HOSTILE,
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


def test_before_and_after_are_shown_together():
    better = audits.comparison().model_copy(update={"verdict": "nearer to parity (lower)"})
    text, parser = seen(results=cells(**{"against.other.seat": better}))
    words = " ".join(parser.texts)
    summary = "From this model to the edited model: 1 nearer to parity."
    assert words.index(summary) < words.index("What was detected")  # and again in its section
    part = text.partition('<section id="against"')[2].partition("</section>")[0]
    for item in ("1.2 points [1, 1.4]; parity 0", "0.8 points [0.6, 1]; parity 0", "-0.4 [-0.5"):
        assert item in part.replace("\u00a0", " ")
    assert part.count('class="hollow"') == part.count('class="dot"') == 1


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
    assert "was run in full" not in words
    assert "The same command again: the audit continues from here." in words


def test_a_measure_that_failed_validation_is_marked(monkeypatch):
    all_failed = AllFailed()
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", lambda: all_failed)
    text, parser = seen(results=cells())
    assert "Word association (SEAT) †" in parser.texts
    assert any("Failed: wrong on 3 small bert-like models" in text for text in parser.texts)
    assert "No test could show whether this model is biased; 2 not reliable for this kind" in text
    assert "What was detected" in text
    assert "No test detected bias." in text
    assert 'class="card" id="q-associations" data-kind="not reliable"' in text
    assert "Spearman 0.12 with a planted dose; false alarms not known (n = 10 null models)" in text
    assert {(family, causal) for _, family, causal in all_failed.asked} == {("bert", False)}


def test_a_measure_that_failed_is_marked_where_two_models_are_compared(monkeypatch):
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", AllFailed)
    subset = cells(**{"against.other.seat": audits.comparison()})
    text, _ = seen(results=subset)
    item_by_item = text.partition('id="against"')[2]
    assert "Word association (SEAT) †" in item_by_item
    assert "From this model to the edited model: 1 not reliable here." in text


def test_what_was_added_stands_apart_from_the_core_suite():
    larger = audits.audit(roles=(*audits.ROLES, ("crows-larger", "bias")))
    more = {"cell.more.model.crows-larger": audits.judged("crows", 0.9, 0.001, population=1508)}
    text, _ = seen(larger, cells(**more))
    card = text.partition('id="q-stereotypes"')[2].partition("</article>")[0]
    assert 'data-kind="none found"' in card[:60]  # the core suite decides
    added = card.partition('id="t-crows-larger"')[2]
    assert "40 of 1,508 (3%)" in added
    assert "Added by the time budget: the headline does not count it." in added
    assert "(not counted above)" in text.partition("What was detected")[2]
    assert "Gender bias detected by 1 of 3 tests" in text


def test_a_measure_that_was_not_tried_is_said_to_be(monkeypatch):
    monkeypatch.setattr("levelhead.core.calibration.load_calibration", lambda: None)
    _, parser = seen(results=cells())
    assert any("Not tried on models with planted bias" in text for text in parser.texts)
    assert not any("†" in text for text in parser.texts)


# -- cards


def test_a_card_shows_the_effect_on_the_common_scale_with_its_numbers(base):
    card = (
        base[0].partition('<article class="card" id="q-associations"')[2].partition("</article>")[0]
    )
    assert "4.0 times the smallest effect that this test reliably detects" in card  # 1.2 / 0.3
    assert card.count('<svg class="track"') == card.count('<svg class="axis"') == 1
    # 1.2 / 0.3 = 4, and its interval ends at 4.67: the axis ends at 5, parity is its middle.
    assert '<circle cx="90.0%"' in card
    assert "levelhead measure a-model -m seat" in card
    for label in ("How it works", "Example (invented)", "Limits", "Source"):
        assert label in card


def test_a_test_without_a_detectable_effect_shows_no_bar_and_says_so():
    seat = audits.judged("seat", 1.2, 0.001, detectable=None)
    text, _ = seen(results=cells(**{"cell.audit.model.seat": seat}))
    card = text.partition('id="q-associations"')[2].partition("</article>")[0]
    assert "no smallest detectable effect is known" in card
    assert '<svg class="track"' not in card


def test_the_items_behind_a_number_are_on_the_page_without_scripts(base):
    table = base[0].partition('id="q-associations"')[2].partition('<table class="items">')[2]
    rows = table.partition("</table>")[0].split("<tr>")[2:]
    assert len(rows) == 10
    assert "The woman works as a nurse 39." in rows[0]
    assert "she 0.39, he 0.2" in rows[0]
    assert base[0].count('id="t-seat-items"') == 1


def test_a_tile_for_each_outcome_has_icon_word_and_count(base):
    tiles = base[0].partition('class="tiles"')[2].partition("</ul>")[0].split("<li")[1:]
    assert len(tiles) == 4
    for tile, count, word in zip(
        tiles,
        (1, 1, 0, 1),
        ("bias detected", "no bias found", "inconclusive", "not reliable or not run"),
        strict=True,
    ):
        assert 'class="icon"' in tile
        assert f"<strong>{count}</strong>" in tile
        assert word in tile


def test_nothing_found_is_followed_by_its_caveat_and_a_step():
    calm = audits.judged("seat", 0.01, 0.9)
    text, _ = seen(results=cells(**{"cell.audit.model.seat": calm}))
    assert "Do not read this as proof" in text
    assert "No bias found. That is no proof of its absence" in text
    assert "levelhead measure MY-CLASSIFIER -m counterfactual" in text


def test_a_hostile_name_stays_one_word_of_a_command():
    text, _ = seen(audits.audit("x; rm -rf ~"), cells())
    assert "levelhead measure &#39;x; rm -rf ~&#39; -m seat" in text
    assert "levelhead audit &#39;x; rm -rf ~&#39; --edit" in text
