"""Chromium without a window and without a network, and a page in it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["NO_BROWSER", "Browser", "open_browser", "why_absent"]

NO_BROWSER = "THE PAGE IS NOT TESTED IN A BROWSER"

_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage",
)  # fmt: skip
_PROGRAMS = ("chromium", "chromedriver")


def why_absent() -> str:
    """Say what is missing for tests in a browser; empty if nothing is."""
    missing = [name for name in _PROGRAMS if not shutil.which(name)]
    try:
        import selenium  # noqa: F401
    except ImportError:
        missing.append("selenium")
    return (
        f"{NO_BROWSER}: {', '.join(missing)} not found; "
        "apt-get install chromium chromium-driver; pip install selenium"
    ) if missing else ""  # fmt: skip


class Browser:
    """A window of Chromium that reaches no host, and what tests do in it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.cdp("Network.enable", {})
        none = {"latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        self.cdp("Network.emulateNetworkConditions", {"offline": True, **none})

    def cdp(self, command: str, given: dict[str, Any]) -> Any:
        return self.driver.execute_cdp_cmd(command, given)

    def size(self, width: int, height: int) -> None:
        given = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.cdp("Emulation.setDeviceMetricsOverride", given)

    def prefers(self, scheme: str) -> None:
        self.cdp("Emulation.setEmulatedMedia",
                 {"features": [{"name": "prefers-color-scheme", "value": scheme}]})  # fmt: skip

    def open(self, page: Path) -> None:
        """Open a page from disk, and wait for its timeline, which is then ``T``."""
        self.driver.get(page.resolve().as_uri())
        if self.run("return localStorage.length"):  # what a person chose on another page
            self.run("localStorage.clear()")
            self.driver.get(page.resolve().as_uri())
        assert self.run_async(
            "nadiTimeline.then((t) => { window.T = t; done(true); }, (e) => done(String(e)));"
        ) is True  # fmt: skip

    def run(self, script: str, *given: Any) -> Any:
        return self.driver.execute_script(script, *given)

    def run_async(self, script: str) -> Any:
        return self.driver.execute_async_script(f"const done = arguments[0]; {script}")

    def complaints(self) -> list[str]:
        """Give what the console says since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start Chromium with a new profile; skips the test, and says so, where it is absent."""
    if why := why_absent():
        pytest.skip(why)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for option in (*_OPTIONS, f"--user-data-dir={profile}"):
            options.add_argument(option)
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        driver.set_script_timeout(60)
        try:
            yield Browser(driver)
        finally:
            driver.quit()
