"""The whole page: one HTML file with its styles, scripts and data, which asks no host for anything.

A content security policy allows nothing but these scripts, named by their hashes, so that no text
of a recording can run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from nadi.formats.files import write_beside
from nadi.report.page.figures import Figures
from nadi.report.page.page_sections import RenderedSection, rendered_sections
from nadi.report.page.timeline_section import packed_timeline
from nadi.report.schedule_timeline import TimelinePart
from nadi.units import format_count, printable

__all__ = ["html_page", "write_page"]

_SCRIPTS = (
    "timeline_data.js", "timeline_view.js", "timeline_controls.js", "flame_graph.js", "page.js",
)  # fmt: skip
_HELP = (
    "Scroll for rows; Ctrl + wheel zooms, Shift + wheel or a drag pans. Keys: W S zoom, A D pan, "
    "0 all, / search, N next, [ ] neighbors, F zoom to the selection."
)
_ORDER = 10  # of the timeline among the sections


def write_page(
    path: Path,
    results: dict[str, Any],
    parts: Sequence[TimelinePart] = (),
    *,
    title: str,
    window: tuple[int, int] | None = None,
) -> None:
    """Write results and schedules as a page; see :func:`html_page`.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    content = html_page(results, parts, title=title, window=window)
    with write_beside(path) as file:
        for piece in content:
            file.write(piece.encode(errors="replace"))


def html_page(
    results: dict[str, Any],
    parts: Sequence[TimelinePart] = (),
    *,
    title: str,
    window: tuple[int, int] | None = None,
) -> Iterator[str]:
    """Make a page of results, piece by piece.

    Parameters
    ----------
    results
        As in ``summary.json``, or what another command prints with ``--json``.
    parts
        Schedules for the timeline; without one there is no timeline.
    title
        What is shown.
    window
        The time range that the timeline shows first, ns since the job's origin.
    """
    sections = rendered_sections(Figures(results))
    packed = ""
    if parts:
        timeline, packed = _timeline(parts, window)
        sections = sorted([*sections, timeline], key=lambda section: section.order)
    script = _assets(_SCRIPTS)
    yield _head(title, script)
    links = "".join(f'<a href="#{one.name}">{one.title}</a>' for one in sections)
    yield (
        f"<header><h1>{escape(printable(title, 80))}</h1><nav aria-label=sections>{links}</nav>"
        "<button class=button id=scheme>dark</button></header>\n<main>\n"
    )
    for section in sections:
        yield section.html + "\n"
    yield "</main>\n<div id=tip hidden role=tooltip></div>\n"
    if packed:
        yield f'<script type="text/plain" id="timeline-data">{packed}</script>\n'
    yield f"<script>{script}</script>\n</body>\n</html>\n"


def _head(title: str, script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(printable(title, 80))}</title>\n<style>\n{_assets(['page.css'])}</style>\n"
        "</head>\n<body>\n"
    )


def _assets(names: Sequence[str]) -> str:
    folder = resources.files("nadi.report.page") / "assets"
    texts = ((folder / name).read_text(encoding="utf-8") for name in names)
    return "\n".join(texts).replace('"use strict";\n', "")


def _timeline(
    parts: Sequence[TimelinePart], window: tuple[int, int] | None
) -> tuple[RenderedSection, str]:
    """Return the section of the timeline, and its data."""
    packed, number = packed_timeline(parts, window)
    html = f"""<section id="timeline"><h2>Timeline</h2>
<div class=tools>
<button class=button id=timeline-in aria-label="zoom in">+</button>
<button class=button id=timeline-out aria-label="zoom out">&minus;</button>
<button class=button id=timeline-home>all</button>
<button class=button id=timeline-path aria-pressed=false>critical path only</button>
<input type=search id=timeline-search placeholder="search operations"
 aria-label="search operations">
<button class=button id=timeline-next>next</button>
<output id=timeline-found></output>
<small>{format_count(number)} events, all in this file</small>
</div>
<div id=timeline-rows><canvas id=timeline-canvas tabindex=0 role=application
 aria-label="timeline: ranks, threads and streams over time"></canvas>
<div id=timeline-room></div></div>
<p id=timeline-status role=status>loading ...</p>
<div id=timeline-details aria-live=polite></div>
<small>{_HELP} Red: the critical path. Arrows of the chosen operation: blue, what it waits for;
those in the color of text, what waits for it; dashed, inferred.</small>
</section>
"""
    return RenderedSection(_ORDER, "timeline", "Timeline", html), packed
