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
    subset = audits.results(
        **{"cell.audit.model.seat": seat, "against.other.seat": audits.comparison()}
    )
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_bytes(
        render_audit_page(audits.audit(HOSTILE), subset, command="levelhead study run x -o y")
    )
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


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_everybody_can_read_it(opened, width, dark):
    looks(opened, width=width, dark=dark)
    overflow = (
        "return document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth"
    )
    assert opened.execute_script(overflow) <= 0
    opened.execute_script(axe())
    result = opened.execute_async_script(
        "const done = arguments[0]; axe.run().then(done, (e) => done({error: String(e)}));"
    )
    assert "error" not in result
    bad = [item for item in result["violations"] if item["impact"] in ("serious", "critical")]
    assert [(item["id"], [node["html"][:120] for node in item["nodes"][:3]]) for item in bad] == []


def test_without_scripts_the_essentials_are_there(driver, opened):
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        driver.refresh()
        body = driver.find_element(By.TAG_NAME, "body").text
        assert "shows significant bias" in body
        assert len(driver.find_elements(By.CSS_SELECTOR, "figure img")) == 6
        cell = driver.find_elements(By.CSS_SELECTOR, "button.head")[3]
        ActionChains(driver).scroll_to_element(cell).move_to_element(cell).perform()
        assert cell.find_element(By.CSS_SELECTOR, ".tip").is_displayed()
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
