"""Take the pictures of pages that the documentation shows: ``make pictures``; needs Chromium."""

from __future__ import annotations

import base64
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

from selenium.webdriver import ActionChains  # noqa: E402

from nadi.cli import main as nadi  # noqa: E402
from tests.report.headless_browser import Browser, open_browser  # noqa: E402  found by the path

DEMO = DOCS.parent / "src/nadi/data/demo"
EXAMPLES = DOCS.parent / "examples/recordings"
VIT = DOCS.parents[1] / "shared/data/wild/h100_vit.json.gz"  # as docs/tutorials/slow-step.md says


def main() -> None:
    """Make each page, use it as a person does, and take its picture."""
    with tempfile.TemporaryDirectory() as name, open_browser() as browser:
        place = Path(name)
        take(browser, page(place, DEMO), "report/light.png", sum_an_area)
        simulated = place / "simulated.nadi"
        nadi(["simulate", str(DEMO), "--system", "pcie-workstation", "-o", str(simulated)])
        browser.prefers("dark")
        take(browser, page(place, DEMO, simulated), "report/dark.png", search)
        browser.prefers("light")
        take(browser, page(place, EXAMPLES / "late_rank"), "tutorials/late-rank.png")
        two = page(place, EXAMPLES / "yesterday", EXAMPLES / "today")
        take(browser, two, "tutorials/what-changed.png")
        if VIT.exists():
            copy = shutil.copyfile(VIT, place / "vit.json.gz")
            take(browser, page(place, copy), "tutorials/vit.png")


def page(place: Path, *sources: Path) -> Path:
    """Write the page of recordings."""
    path = place / "page.html"
    nadi(["report", *map(str, sources), "-o", str(path), "--overwrite"])
    return path


def take(
    browser: Browser, page: Path, name: str, use: Callable[[Browser], None] = lambda _: None
) -> None:
    """Open a page, use it, and write what is in the window then."""
    browser.size(1440, 900)
    browser.open(page)
    use(browser)
    browser.run_async("requestAnimationFrame(() => requestAnimationFrame(() => done(1)))")
    taken = browser.cdp("Page.captureScreenshot", {"format": "png"})
    (DOCS / name).write_bytes(base64.b64decode(taken["data"]))


def sum_an_area(browser: Browser) -> None:
    """Drag over half a step of the main thread that is in view."""
    browser.run("document.getElementById('timeline').scrollIntoView()")
    x, y, width, height = browser.run(
        "const v = T.view, line = v.lines.find((l) => l.track.process === T.data.focus"
        " && l.track.title.includes('main')); const [y] = v.place([line.y, line.height, false]);"
        "return [v.gutter + 0.25 * (v.width - v.gutter), y + 5, v.width, v.height]"
    )
    canvas = browser.driver.find_element("id", "timeline-canvas")
    chain = ActionChains(browser.driver, duration=20)
    chain.move_to_element_with_offset(canvas, round(x - width / 2), round(y - height / 2))
    chain.click_and_hold().move_by_offset(round(0.35 * width), 8).release().perform()
    browser.run("scrollTo(0, 0)")


def search(browser: Browser) -> None:
    """Give the timeline the whole window, put a rank on top, and search."""
    browser.driver.find_element("id", "timeline-most").click()
    browser.run("T.view.scroller.scrollTop = T.view.heads[2].y - T.view.top")
    browser.driver.find_element("id", "timeline-search").send_keys("/all_reduce|mm$/")


if __name__ == "__main__":
    main()
