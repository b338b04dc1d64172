"""The whole page: one HTML file with its styles, scripts and data, which asks no host for anything.

A content security policy allows nothing but these scripts, named by their hashes, so that no text
of a recording can run. Each section is a declared result.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from html import escape
from importlib import import_module, resources
from pathlib import Path
from typing import Any, NamedTuple

from nadi.errors import UsageError
from nadi.files.files import check_target, locate, write_beside
from nadi.results.page.figures import Figures, compact, zipped
from nadi.units import printable

# a page is sent by mail and kept for years: what only who edits the files reads is left out
_COMMENTS = re.compile(r"^ *(?://|/\*\*|\*(?! \{)).*\n", re.MULTILINE)
_INDENTS = re.compile(r"^ +", re.MULTILINE)
_SPACES = re.compile(r"\s*([{};,])\s*")  # of styles
_SCRIPTS = (
    "timeline_data.js", "timeline_view.js", "timeline_overview.js", "timeline_area.js",
    "timeline_link.js", "timeline_controls.js", "flame_graph.js", "memory_holders.js", "page.js",
)  # fmt: skip


class PageTimeline(NamedTuple):
    """The timeline of a page: its section, and the events that its script unpacks."""

    section: RenderedSection
    packed: str


def write_page(
    path: Path,
    results: dict[str, Any],
    timeline: PageTimeline | None = None,
    *,
    title: str,
) -> None:
    """Write results and schedules as a page; see :func:`html_page`.

    - Raises InputError if the file cannot be written.
    """
    content = html_page(results, timeline, title=title)
    with write_beside(path) as file:
        for piece in content:
            file.write(piece.encode(errors="replace"))


def html_page(
    results: dict[str, Any],
    timeline: PageTimeline | None = None,
    *,
    title: str,
) -> Iterator[str]:
    """Make a page of results, piece by piece.

    - ``results``: As in ``summary.json``, or what another command prints with ``--json``.
    - ``timeline``: Schedules drawn, by :func:`nadi.graph.timeline.timeline_section.page_timeline`.
    - ``title``: What is shown.
    """
    sections = rendered_sections(Figures(results))
    packed = ""
    if timeline is not None:
        packed = timeline.packed
        sections = sorted([*sections, timeline.section], key=lambda section: section.order)
    script, loader = _assets(_SCRIPTS), _assets(["load.js"])
    yield _head(title, (script, loader))
    links = "".join(f'<a href="#{one.name}">{one.title}</a>' for one in sections)
    yield (
        f"<header><h1>{escape(printable(title, 80))}</h1><nav aria-label=sections>{links}</nav>"
        "<button class=button id=scheme>dark</button></header>\n<main>\n"
    )
    for section in sections:
        yield compact(section.html) + "\n"
    yield "</main>\n<div id=tip hidden role=tooltip></div>\n"
    if packed:
        yield f'<script type="text/plain" id="timeline-data">{packed}</script>\n'
    yield f'<script type="text/plain" id="scripts">{zipped(script.encode())}</script>\n'
    yield f"<script>{loader}</script>\n</body>\n</html>\n"


def _head(title: str, scripts: Sequence[str]) -> str:
    digests = (
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    )
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    style = _SPACES.sub(r"\1", _assets(["page.css"]))
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(printable(title, 80))}</title>\n<style>{style}</style>\n"
        "</head>\n<body>\n"
    )


def _assets(names: Sequence[str]) -> str:
    folder = resources.files("nadi.results.page") / "assets"
    texts = ((folder / name).read_text(encoding="utf-8") for name in names)
    joined = "\n".join(texts).replace('"use strict";\n', "")
    return _INDENTS.sub("", _COMMENTS.sub("", joined))


def check_page(path: Path, sources: list[Path], *, overwrite: bool) -> None:
    """Check that a page can be written before it is computed; writes nothing.

    - Raises UsageError if the suffix is not that of HTML, or the file is one of ``sources``.
    - Raises InputError if it exists already and ``overwrite`` is not given, or cannot be written.
    """
    if path.suffix not in (".html", ".htm"):
        raise UsageError(str(path), "a report is HTML", "give a name that ends in .html")
    check_target(locate(path), [locate(source) for source in sources], overwrite=overwrite)


SECTIONS = (
    "nadi.analyses.recorded.result:FLAME",
    "nadi.analyses.recorded.result:OPERATORS",
    "nadi.analyses.recorded.result:RATES",
    "nadi.analyses.recorded.result:RECORDED_MEMORY",
    "nadi.bottlenecks.differences.result:DIFF",
    "nadi.bottlenecks.differences.result:PREDICTION",
    "nadi.bottlenecks.steps.run_report:ACTIVITY",
    "nadi.bottlenecks.steps.run_report:COLLECTIVES",
    "nadi.bottlenecks.steps.run_report:CRITICAL_PATH",
    "nadi.bottlenecks.steps.run_report:ISSUES",
    "nadi.bottlenecks.steps.result:MODULES",
    "nadi.bottlenecks.steps.run_report:HOST_OPERATIONS",
    "nadi.bottlenecks.steps.run_report:KERNELS",
    "nadi.bottlenecks.steps.run_report:PROVENANCE",
    "nadi.bottlenecks.steps.run_report:STEP_TIME",
    "nadi.bottlenecks.steps.run_report:STRAGGLERS",
    "nadi.bottlenecks.steps.result:VERDICT",
    "nadi.bottlenecks.steps.answers:ANSWERS",
    "nadi.bottlenecks.steps.run_report:WHAT_IFS",
    "nadi.bottlenecks.waiting.result:WAITS",
    "nadi.estimates.searches.result:SEARCH",
    "nadi.estimates.single.result:ESTIMATE",
    "nadi.jobs.folded.result:FOLD",
    "nadi.memory.placement.result:PLACEMENT",
    "nadi.memory.tiers.result:SECOND_TIER",
    "nadi.serving.result:SERVING",
    "nadi.serving.sweep_results:SERVER_SEARCH",
    "nadi.serving.sweep_results:SERVER_SWEEP",
    "nadi.sharing.similarity.result:SIMILARITY",
    "nadi.simulation.runs.result:SIMULATION",
)
"""Declared results, each beside what it shows."""


class Section(NamedTuple):
    """A section of a page: its place in the order, name, title, and what writes it."""

    order: int
    name: str
    title: str
    render: Callable[[Figures], str]


class RenderedSection(NamedTuple):
    """A section as it stands on a page: its place in the order, and its title and content as HTML.

    ``name`` is that of its element.
    """

    order: int
    name: str
    title: str
    html: str


@cache
def all_sections() -> tuple[Section, ...]:
    """Return all sections, in the order of the page."""
    return tuple(sorted(map(_section, SECTIONS), key=lambda section: section[:2]))


def _section(place: str) -> Section:
    module, _, name = place.partition(":")
    result = getattr(import_module(module), name)
    return Section(result.order, result.kind.replace("_", "-"), result.title, result.html)


def rendered_sections(figures: Figures) -> list[RenderedSection]:
    """Render the sections that the results say something to."""
    found = []
    for order, name, title, render in all_sections():
        content = render(figures)
        if content:
            title = escape(title)
            html = f'<section id="{name}"><h2>{title}</h2>\n{content}\n</section>'
            found.append(RenderedSection(order, name, title, html))
    return found
