"""Write the pages of the documentation that come from the code: ``make docs``."""

import ast
import inspect
import re
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import networkx as nx

import nadi
from nadi.cli.command_page import command_reference
from nadi.trace.schema import data_model_page

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

from docs.notebooks import executed  # noqa: E402  found by the path
from tests.test_house import FLOORS, floor_of, import_graph  # noqa: E402  as well

BASE = "errors, version, units, progress, old_names"  # one box: they import nothing but each other
NOTEBOOK = "../examples/look_at_a_run.ipynb"
OPENING = """\
# Python API

<!-- Written by `make docs` from the package's declarations: edit them instead. -->

`import nadi` gives the main verbs and values, and the rooms that have everything else, each
about one subject. What stands in `nadi` itself is also a name of the room of its subject.
Everything is loaded when it is first used. Names that are not listed here may change at any time.
`help(nadi.what_if)` shows parameters, results and errors.
"""


def public_packages() -> dict[str, ModuleType]:
    """Give ``nadi`` and the packages in it, by name."""
    inside = {f"nadi.{name}": getattr(nadi, name) for name in nadi.__all__}
    return {"nadi": nadi} | {
        name: value for name, value in sorted(inside.items()) if inspect.ismodule(value)
    }


def api_page() -> str:
    """Write every public name with its summary, package by package."""
    lines = [OPENING]
    for name, package in public_packages().items():
        lines += [f"## `{name}`", "", summary(package), "", "| name | what it is |", "|---|---|"]
        for one in package.__all__:
            value = getattr(package, one)
            if inspect.ismodule(value) and package is nadi:
                continue  # it has a section of its own
            told = "its version" if one == "__version__" else summary_of(package, one)
            call = f"{one}()" if inspect.isroutine(value) else one
            lines.append(f"| `{call}` | {told.replace('|', chr(92) + '|')} |")
        lines.append("")
    return "\n".join(lines)


def summary_of(package: ModuleType, name: str) -> str:
    """Give the summary of a public name; of a constant the text that follows it."""
    value = getattr(package, name)
    if inspect.isroutine(value) or inspect.isclass(value) or inspect.ismodule(value):
        return summary(value)
    return as_markdown(told_of_constants(package).get(name) or inspect.getdoc(value) or "")


def told_of_constants(package: ModuleType) -> dict[str, str]:
    """Read the texts that follow the constants which a package takes from its modules."""
    folder = Path(str(package.__file__)).parent
    found = {}
    for line in ast.walk(ast.parse((folder / "__init__.pyi").read_text(encoding="utf-8"))):
        if not isinstance(line, ast.ImportFrom) or not line.module:
            continue
        module = folder.joinpath(*line.module.split(".")).with_suffix(".py")
        body = ast.parse(module.read_text(encoding="utf-8")).body if module.exists() else []
        for given, text in pairwise(body):
            if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                targets = given.targets if isinstance(given, ast.Assign) else []
                targets += [given.target] if isinstance(given, ast.AnnAssign) else []
                names = [one.id for one in targets if isinstance(one, ast.Name)]
                found |= dict.fromkeys(names, str(text.value.value))
    return found


def summary(value: object) -> str:
    """Give the first paragraph of a docstring, as Markdown."""
    return as_markdown(inspect.getdoc(value) or "")


def as_markdown(text: str) -> str:
    """Give the first paragraph of a text, as Markdown."""
    text = " ".join(text.partition("\n\n")[0].split())
    return re.sub(r":\w+:`~?(?:\w+\.)*(\w+)`", r"`\1`", text).replace("``", "`")


def picture_of_layers() -> str:
    """Draw who imports whom, without the arrows that follow from others, as a Mermaid diagram."""
    box = {floor: BASE if floor in BASE.split(", ") else floor for floor in FLOORS}
    pairs = {
        (box[floor_of(module)], box[floor_of(imported)])
        for module, imported in import_graph().edges
        if floor_of(module) and floor_of(imported)
    }
    drawn = nx.transitive_reduction(nx.DiGraph(pair for pair in pairs if pair[0] != pair[1]))
    order = [*dict.fromkeys(box[floor] for floor in reversed(FLOORS))]
    number = {name: f"n{k}" for k, name in enumerate(order)}
    lines = [f'    {number[name]}["{name}"]' for name in order]
    lines += [
        f"    {number[a]} --> {number[b]}"
        for a, b in sorted(drawn.edges, key=lambda pair: [order.index(one) for one in pair])
    ]
    return "\n".join(["```mermaid", "graph TD", *lines, "```"])


def architecture_page() -> str:
    """Give the page as it is, with the picture drawn anew."""
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    return re.sub(r"```mermaid\n.*?```", lambda _: picture_of_layers(), page, flags=re.DOTALL)


PAGES = {
    "data-model.md": data_model_page,
    "cli.md": command_reference,
    "api.md": api_page,
    "architecture.md": architecture_page,
    NOTEBOOK: lambda: executed(DOCS / NOTEBOOK),
}

if __name__ == "__main__":
    for name, write in PAGES.items():
        (DOCS / name).write_text(write(), encoding="utf-8")
        print(f"wrote docs/{name}")
