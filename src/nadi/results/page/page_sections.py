"""The sections of a page, each a declared result."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from html import escape
from importlib import import_module
from typing import NamedTuple

from nadi.results.page.figures import Figures

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
