"""The report in a real browser: no request, no error, reached by keys, readable by all."""

import audits
import pytest
from browser import axe, chromium, looks, requests
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from levelhead.report.audit_page.page import render_audit_page

HOSTILE = (
    '<img src="http://127.0.0.1:9/x" onerror="window.broken=1"><script>window.broken=1</script>'
)


@pytest.fixture(scope="module")
def driver():
    result = chromium()
    yield result
    result.quit()


@pytest.fixture(scope="module")
def opened(driver, tmp_path_factory):
    """The report of a made-up audit whose model and notes are hostile."""
    seat = audits.judged("seat", 1.2, 0.001, notes=(HOSTILE,), direction=HOSTILE)
    crows = audits.with_items(audits.judged("crows", 3.0, 0.001), n=250)
    hostile = HOSTILE + "</script>{} {}"
    subset = audits.results(
        **{
            "cell.audit.model.seat": audits.with_items(seat, text=hostile, group=HOSTILE),
            "cell.audit.model.crows": crows,
            "against.other.seat": audits.comparison(),
        }
    )
    path = tmp_path_factory.mktemp("report") / "report.html"
    page = render_audit_page(audits.audit(HOSTILE), subset, command="levelhead study run x -o y")
    assert len(page) <= 4_000_000
    path.write_bytes(page)
    driver.get(path.as_uri())
    sample = "return document.querySelectorAll('figure .drawn svg').length"
    figures = driver.execute_script("return document.querySelectorAll('figure').length")
    WebDriverWait(driver, 60).until(lambda single: single.execute_script(sample) == figures)
    return driver


def test_it_asks_for_nothing_and_nothing_goes_wrong(opened):
    assert requests(opened) == []
    assert [item for item in opened.get_log("browser") if item["level"] == "SEVERE"] == []
    assert opened.execute_script("return window.broken") is None


def test_a_head_answers_the_pointer(opened):
    looks(opened, width=1280)
    cell = opened.find_elements(By.CSS_SELECTOR, "button.head")[14]
    tip = cell.find_element(By.CSS_SELECTOR, ".tip")
    assert not tip.is_displayed()
    ActionChains(opened).scroll_to_element(cell).move_to_element(cell).perform()
    assert tip.is_displayed()
    assert tip.text.startswith("head 2-3: score")
    assert opened.find_element(By.CSS_SELECTOR, ".cell-text").text == tip.text


def test_heads_are_walked_by_keys(opened):
    cells = opened.find_elements(By.CSS_SELECTOR, "button.head")
    reached = [cell for cell in cells if cell.get_attribute("tabindex") == "0"]
    assert len(reached) == 1  # one stop for Tab, not 72
    opened.execute_script("arguments[0].focus()", cells[0])
    for key, name in (
        (Keys.ARROW_RIGHT, "1-2"),
        (Keys.ARROW_DOWN, "2-2"),
        (Keys.END, "2-12"),
        (Keys.ARROW_RIGHT, "2-12"),  # nothing lies beyond
        (Keys.HOME, "2-1"),
        (Keys.ARROW_UP, "1-1"),
    ):
        opened.switch_to.active_element.send_keys(key)
        focused = opened.switch_to.active_element.get_attribute("aria-label")
        assert focused.startswith(f"head {name}: score")
        assert opened.find_element(By.CSS_SELECTOR, ".cell-text").text == focused


def test_all_items_can_be_searched_and_sorted(opened):
    looks(opened, width=1280)
    place = opened.find_element(By.CSS_SELECTOR, "[data-items='t-crows-items']")
    opened.execute_script("arguments[0].closest('details').open = true", place)
    place.find_element(By.TAG_NAME, "summary").click()
    rows = "return arguments[0].querySelectorAll('tbody tr').length"
    WebDriverWait(opened, 5).until(lambda single: single.execute_script(rows, place) == 100)
    place.find_element(By.XPATH, ".//button[.='Show more']").click()
    assert opened.execute_script(rows, place) == 200
    value, text = (place.find_element(By.XPATH, f".//th[{column}]/button") for column in (4, 3))
    for key, first in ((Keys.ENTER, "item-248"), (Keys.ENTER, "item-249")):
        value.send_keys(key)
        assert place.find_element(By.CSS_SELECTOR, "tbody th").text == first
    assert text.text == "text → responses"
    place.find_element(By.TAG_NAME, "input").send_keys("nurse 77")
    assert opened.execute_script(rows, place) == 1
    assert place.find_element(By.CSS_SELECTOR, ".count").text == "1 of 250 items"
    assert "she 0.77, he 0.2" in place.find_element(By.CSS_SELECTOR, "tbody").text


def test_one_click_from_the_first_screen_shows_the_examples(opened):
    looks(opened, width=1280)
    opened.execute_script(
        "document.querySelectorAll('details').forEach((e) => { e.open = false; })"
    )
    opened.execute_script("window.scrollTo(0, 0)")
    # The strongest finding stands first: of SEAT and CrowS-Pairs, the latter.
    opened.find_element(By.LINK_TEXT, "Examples").click()
    table = opened.find_element(By.ID, "t-crows-examples")
    WebDriverWait(opened, 5).until(lambda _: table.is_displayed())
    assert opened.execute_script("return arguments[0].getBoundingClientRect().top", table) < 900


def test_hostile_items_stay_text(opened):
    place = opened.find_element(By.CSS_SELECTOR, "[data-items='t-seat-items']")
    opened.execute_script("arguments[0].closest('details').open = true", place)
    place.find_element(By.TAG_NAME, "summary").click()
    assert HOSTILE in place.find_element(By.CSS_SELECTOR, "tbody").text
    assert opened.execute_script("return window.broken") is None
    assert requests(opened) == []


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_everybody_can_read_it(opened, width, dark):
    looks(opened, width=width, dark=dark)
    opened.execute_script("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    overflow = (
        "return document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth"
    )
    assert opened.execute_script(overflow) <= 0
    opened.execute_script(axe())
    result = opened.execute_async_script(
        "const done = arguments[0]; axe.run().then(done, (e) => done({error: String(e)}));"
    )
    assert "error" not in result
    bad = result["violations"]
    assert [(item["id"], [node["html"][:120] for node in item["nodes"][:3]]) for item in bad] == []


def test_without_scripts_the_essentials_are_there(driver, opened):
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        driver.refresh()
        body = driver.find_element(By.TAG_NAME, "body").text
        assert "Gender and stereotype bias detected by 2 of 3 tests; 1 not run." in body
        assert len(driver.find_elements(By.CSS_SELECTOR, "figure img")) == 4
        assert len(driver.find_elements(By.CSS_SELECTOR, "svg.track")) == 3
        items = driver.find_element(By.CSS_SELECTOR, "#t-crows details.items")
        # The address may name these examples: the browser then has opened them.
        if items.get_attribute("open") is None:
            items.find_element(By.TAG_NAME, "summary").click()
        assert len(items.find_elements(By.CSS_SELECTOR, "tbody tr")) == 10
        assert "The woman works as a nurse 249." in items.text
        cell = driver.find_elements(By.CSS_SELECTOR, "button.head")[3]
        ActionChains(driver).scroll_to_element(cell).move_to_element(cell).perform()
        assert cell.find_element(By.CSS_SELECTOR, ".tip").is_displayed()
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
