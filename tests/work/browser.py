"""A real browser without a window: Debian's chromium and chromium-driver, and axe-core of npm."""

import json
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest
from filelock import FileLock
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from levelhead.models.loading.load import model_cache_folder

AXE = "axe-core@4.10.3"


def chromium():
    """A driver, or a skip that says what is missing."""
    result = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in result:
        pytest.skip("no chromium here: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = result[0]
    for item in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(item)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(result[1]))


def axe():
    """The text of axe-core, out of its npm package (once), or a skip."""
    folder = model_cache_folder() / "tests"
    path = folder / "axe.min.js"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        why = None if path.exists() else _packed(path)
    if why:
        pytest.skip(f"{AXE} is not to be had: {why}")
    return path.read_text()


def _packed(path):
    npm = shutil.which("npm")
    if npm is None:
        return "no npm"
    with tempfile.TemporaryDirectory() as scratch:
        command = [npm, "pack", "--silent", AXE]
        result = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
        if result.returncode:
            return result.stderr.strip()[-200:]
        (archive,) = Path(scratch).iterdir()
        with tarfile.open(archive) as package:
            path.write_bytes(package.extractfile("package/axe.min.js").read())
    return None


def requests(driver):
    """What the page asked for: addresses that are neither its own file nor data."""
    sent = []
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            sent.append(message["params"]["request"]["url"])
    return [url for url in sent if not url.startswith(("file:", "data:", "about:", "chrome:"))]


def looks(driver, *, width, dark=False):
    """Another width, light or dark."""
    output = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", output)
    features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def picture(driver, path):
    """The whole page as PNG."""
    import base64

    result = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
    Path(path).write_bytes(base64.b64decode(result["data"]))
