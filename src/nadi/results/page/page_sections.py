"""The sections of a page, each a module beside the results that it shows."""

from __future__ import annotations

from functools import cache
from html import escape
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

from nadi.results.page.figures import Figures

__all__ = ["SECTIONS", "RenderedSection", "all_sections", "rendered_sections"]


SECTIONS = (
    "nadi.analyses.recorded.flame_section",
    "nadi.analyses.recorded.rates_section",
    "nadi.analyses.recorded.recorded_memory_section",
    "nadi.bottlenecks.differences.diff_section",
    "nadi.bottlenecks.differences.prediction_section",
    "nadi.bottlenecks.steps.activity_section",
    "nadi.bottlenecks.steps.collectives_section",
    "nadi.bottlenecks.steps.critical_path_section",
    "nadi.bottlenecks.steps.issues_section",
    "nadi.bottlenecks.steps.module_section",
    "nadi.bottlenecks.steps.operation_section",
    "nadi.bottlenecks.steps.provenance_section",
    "nadi.bottlenecks.steps.step_time_section",
    "nadi.bottlenecks.steps.straggler_section",
    "nadi.bottlenecks.steps.verdict_section",
    "nadi.bottlenecks.steps.what_if_section",
    "nadi.bottlenecks.waiting.waits_section",
    "nadi.estimates.searches.search_section",
    "nadi.estimates.single.estimate_section",
    "nadi.jobs.folded.fold_section",
    "nadi.memory.placement.placement_section",
    "nadi.memory.tiers.second_tier_section",
    "nadi.sharing.similarity.similarity_section",
    "nadi.simulation.runs.memory_tier_section",
    "nadi.simulation.runs.simulation_section",
)
"""Modules with ``ORDER``, ``TITLE`` and ``render``, each beside the results that it shows."""


class RenderedSection(NamedTuple):
    """A section as it stands on a page: its place in the order, and its title and content as HTML.

    ``name`` is that of its element.
    """

    order: int
    name: str
    title: str
    html: str


@cache
def all_sections() -> tuple[ModuleType, ...]:
    """Return the modules of all sections, in the order of the page."""
    found = [import_module(name) for name in SECTIONS]
    return tuple(sorted(found, key=lambda section: (section.ORDER, section.__name__)))


def rendered_sections(figures: Figures) -> list[RenderedSection]:
    """Render the sections that the results say something to."""
    found = []
    for section in all_sections():
        content = section.render(figures)
        if content:
            name = section.__name__.rpartition(".")[2].removesuffix("_section").replace("_", "-")
            title = escape(section.TITLE)
            html = f'<section id="{name}"><h2>{title}</h2>\n{content}\n</section>'
            found.append(RenderedSection(section.ORDER, name, title, html))
    return found
