"""One Chromium for all tests of pages in a browser, as starting it takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.report.headless_browser import Browser, open_browser


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with open_browser() as found:
        yield found


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    """Give the browser as a person has it who opened nothing yet, at 1440 x 900."""
    chromium.driver.get("about:blank")
    chromium.size(1440, 900)
    chromium.prefers("light")
    chromium.complaints()
    return chromium
