"""Write the pages of the documentation that come from the code: ``make docs``."""

import ast
import inspect
import os
import re
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import networkx as nx

import nadi
from nadi.trace.schema import data_model_page

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

from docs import notebooks  # noqa: E402  found by the path
from docs.command_page import command_reference  # noqa: E402  as well
from tests.test_house import FLOORS, floor_of, import_graph  # noqa: E402  as well

BASE = "errors, version, units, progress, old_names"  # one box: they import nothing but each other
NOTEBOOK = "../examples/look_at_a_run.ipynb"
SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {height}" width="720" height="{height}">
<title>Who imports whom</title>
<style>
path {{ stroke: #555; fill: none; marker-end: url(#tip) }}
rect {{ fill: #e0f2f1; stroke: #00796b }}
text {{ font: 13px sans-serif; text-anchor: middle; fill: #111 }}
</style>
<marker id="tip" markerWidth="8" markerHeight="8" refX="6" refY="4" orient="auto">\
<polygon points="0,0 8,4 0,8" fill="#555"/></marker>
<rect width="720" height="{height}" style="fill: #fff; stroke: none"/>
{drawn}
</svg>
"""
OPENING = """\
# Python API

<!-- Written by `make docs` from the package's declarations: edit them instead. -->

`import nadi` gives the main verbs and values, and the rooms that have everything else, each
about one subject. What stands in `nadi` itself is also a name of the room of its subject.
Everything is loaded when it is first used. Names that are not listed here may change at any time.
The site (`make docs`) has a page for each package, with the parameters, results and errors of
every name; `help(nadi.what_if)` shows the same.
"""


def public_packages() -> dict[str, ModuleType]:
    """Give ``nadi`` and the packages in it, by name."""
    inside = {f"nadi.{name}": getattr(nadi, name) for name in nadi.__all__}
    return {"nadi": nadi} | {
        name: value for name, value in sorted(inside.items()) if inspect.ismodule(value)
    }


def api_page() -> str:
    """Write which packages there are, and how many names each has."""
    lines = [OPENING, "| package | what it is for | names |", "|---|---|---|"]
    for name, package in public_packages().items():
        names = [one for one in package.__all__ if not inspect.ismodule(getattr(package, one))]
        lines.append(f"| `{name}` | {summary(package)} | {len(names)} |")
    return "\n".join(lines) + "\n"


def home_of_names(package: ModuleType) -> dict[str, str]:
    """Give the module in which each public name of a package is defined."""
    stub = Path(str(package.__file__)).with_suffix(".pyi")
    if not stub.exists():  # a module alone: nadi.errors
        return dict.fromkeys(package.__all__, package.__name__)
    return {
        alias.name: f"{package.__name__}.{line.module}"
        for line in ast.walk(ast.parse(stub.read_text(encoding="utf-8")))
        if isinstance(line, ast.ImportFrom) and line.module
        for alias in line.names
    }


def summary(value: object) -> str:
    """Give the first paragraph of a docstring, as Markdown."""
    text = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    return re.sub(r":\w+:`~?(?:\w+\.)*(\w+)`", r"`\1`", text).replace("``", "`")


def picture_of_floors() -> str:
    """Draw who imports whom, without the arrows that follow from others, as an SVG."""
    box = {floor: BASE if floor in BASE.split(", ") else floor for floor in FLOORS}
    pairs = {
        (box[floor_of(module)], box[floor_of(imported)])
        for module, imported in import_graph().edges
        if floor_of(module) and floor_of(imported)
    }
    drawn = nx.transitive_reduction(nx.DiGraph(pair for pair in pairs if pair[0] != pair[1]))
    place, width = {}, {name: 24 + 8 * len(name) for name in drawn}
    for row, generation in enumerate(nx.topological_generations(drawn)):
        names = sorted(generation, key=list(box.values()).index)
        left = 360 - (sum(width[name] for name in names) + 40 * (len(names) - 1)) // 2
        for name in names:
            place[name] = (left + width[name] // 2, 24 + 56 * row)
            left += width[name] + 40
    lines = [
        f'<path d="M{place[a][0]} {place[a][1] + 14}L{place[b][0]} {place[b][1] - 16}"/>'
        for a, b in sorted(drawn.edges)
    ]
    boxes = [
        f'<rect x="{x - width[name] // 2}" y="{y - 14}" width="{width[name]}" height="28" rx="4"/>'
        f'<text x="{x}" y="{y + 5}">{name}</text>'
        for name, (x, y) in place.items()
    ]
    return SVG.format(height=max(y for _, y in place.values()) + 24, drawn="\n".join(lines + boxes))


PAGES = {
    "data-model.md": data_model_page,
    "cli.md": command_reference,
    "api.md": api_page,
    "architecture.svg": picture_of_floors,
    NOTEBOOK: lambda: notebooks.executed(DOCS / NOTEBOOK),
}


def write_tutorial(page: Path) -> None:
    """Write the notebook of a tutorial and the pictures that it draws, if its recording is here."""
    if lacks := notebooks.missing(page):
        print(f"left out the notebook of {page.name}: {', '.join(lacks)} is not here")
        return
    with tempfile.TemporaryDirectory() as folder:
        notebooks.prepare(Path(folder))
        text, pictures = notebooks.notebook_of(page, Path(folder))
    for name, drawn in {f"{page.stem}.ipynb": text, **pictures}.items():
        (page.parent / name).write_text(drawn, encoding="utf-8")
        print(f"wrote docs/tutorials/{name}")


if __name__ == "__main__":
    os.environ["COLUMNS"] = "80"  # the width of what commands print
    for name, write in PAGES.items():
        (DOCS / name).write_text(write(), encoding="utf-8")
        print(f"wrote docs/{name}")
    for page in notebooks.PAGES:
        write_tutorial(page)
