"""Ask axe-core what a person with a screen reader, or without a mouse, cannot use on a page.

    npm pack axe-core && tar xf axe-core-*.tgz package/axe.min.js
    python verification/accessible_page.py package/axe.min.js [TRACES ...]

A page of each recording is opened in Chromium, light and dark, wide and narrow; once as it opens,
and once with a chosen operation, an area and a search. No rule of axe may find anything.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from _report import SHARED, Checks

from nadi.cli import main as nadi

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.report.headless_browser import Browser, open_browser, why_absent

_RUN = """axe.run(document, {resultTypes: ["violations"]}).then((found) => JSON.stringify(
  found.violations.map((one) => `${one.id}: ${one.nodes.length} times, ${one.nodes[0].html}`)))"""
_USE = """
T.controls.select(5);
T.controls.search("a");
const tracks = T.view.tracksBetween(0, T.view.height);
T.controls.area.choose({ from: T.view.from, to: T.view.to, tracks });
"""


def main() -> None:
    """Make the pages, and ask of each."""
    if len(sys.argv) < 2:
        print(f"{__doc__}\naxe-core is not given: nothing is asked\n0 of 0 exact")
        return
    if why := why_absent():
        sys.exit(why)
    axe = Path(sys.argv[1]).read_text()
    recordings = sys.argv[2:] or [
        str(SHARED / "traces" / name) for name in ("cpu_mlp", "gpu_dlrm8")
    ]
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder, open_browser() as browser:
        for source in recordings:
            page = Path(folder) / "page.html"
            nadi(["report", source, "-o", str(page), "--overwrite"])
            for scheme in ("light", "dark"):
                for width in (1440, 800):
                    browser.size(width, 900)
                    browser.prefers(scheme)
                    browser.open(page)
                    name = f"{Path(source).name}, {scheme}, {width} pixels"
                    ask(checks, browser, axe, name)
                    browser.run(_USE)
                    ask(checks, browser, "", f"{name}, in use")
    checks.finish()


def ask(checks: Checks, browser: Browser, axe: str, name: str) -> None:
    """Run axe in the page, whose policy lets no script of others in but by the debugger."""
    if axe:
        browser.cdp("Runtime.evaluate", {"expression": axe})
    given = {"expression": _RUN, "awaitPromise": True}
    found = json.loads(browser.cdp("Runtime.evaluate", given)["result"]["value"])
    checks.add(name, not found, "; ".join(found)[:400])


if __name__ == "__main__":
    main()
