"""The sections of a page: every module of :mod:`nadi.report.page.sections` is one."""

from __future__ import annotations

import pkgutil
from functools import cache
from html import escape
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

from nadi.report.page import sections
from nadi.report.page.figures import Figures

__all__ = ["RenderedSection", "all_sections", "rendered_sections"]


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
    names = (found.name for found in pkgutil.iter_modules(sections.__path__))
    found = [import_module(f"{sections.__name__}.{name}") for name in names]
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
