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
    "analyses.recorded.flame_section",
    "analyses.recorded.rates_section",
    "analyses.recorded.recorded_memory_section",
    "bottlenecks.differences.diff_section",
    "bottlenecks.differences.prediction_section",
    "bottlenecks.steps.activity_section",
    "bottlenecks.steps.collectives_section",
    "bottlenecks.steps.critical_path_section",
    "bottlenecks.steps.issues_section",
    "bottlenecks.steps.module_section",
    "bottlenecks.steps.operation_section",
    "bottlenecks.steps.provenance_section",
    "bottlenecks.steps.step_time_section",
    "bottlenecks.steps.straggler_section",
    "bottlenecks.steps.verdict_section",
    "bottlenecks.steps.what_if_section",
    "bottlenecks.waiting.waits_section",
    "estimates.single.estimate_section",
    "jobs.folded.fold_section",
    "memory.placement.placement_section",
    "memory.tiers.second_tier_section",
    "sharing.similarity.similarity_section",
    "simulation.runs.memory_tier_section",
    "simulation.runs.simulation_section",
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
    found = [import_module(f"nadi.{name}") for name in SECTIONS]
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
