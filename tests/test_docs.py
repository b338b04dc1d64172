"""Documents say what the code does: generated pages are current, examples run."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.amounts import some

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "nadi"
WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md",
           *sorted(DOCS.rglob("*.md"))]  # fmt: skip
# packages that docs/design.md gives a place before they are written
PLANNED = {"algorithm_synthesis/"}


def _generator() -> ModuleType:
    """Give the program that writes pages, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATED = _generator()
EXAMPLES = [
    (page.name, block)
    for page in [*sorted(DOCS.glob("*.md")), ROOT / "CONTRIBUTING.md"]
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
]


@pytest.mark.parametrize("page", GENERATED.PAGES)
def test_a_generated_page_is_current(page: str) -> None:
    assert (DOCS / page).read_text() == GENERATED.PAGES[page](), "run: make docs"


def test_every_package_is_in_the_docs() -> None:
    listed = re.findall(r"^\| `([\w.]+)` \| \S", (DOCS / "api.md").read_text(), re.MULTILINE)
    assert listed == list(GENERATED.public_packages())


@pytest.mark.usefixtures("demo_read_once")
@pytest.mark.parametrize(("page", "example"), some(EXAMPLES))
def test_examples_run(page: str, example: str, demo_folder: Path, tmp_path: Path) -> None:
    exec(example, {"demo_folder": demo_folder, "output_folder": tmp_path})


def test_every_capability_page_has_an_example() -> None:
    with_example = {page for page, _ in EXAMPLES}
    assert with_example >= {"run.md", "linking.md", "event-graph.md", "formats.md", "inspect.md",
                             "redraw.md", "simulators.md", "feeder.md", "what-if.md",
                             "simulate.md", "systems.md", "modules.md",
                             "generate.md", "pricing.md", "estimate.md"}  # fmt: skip


def test_the_readme_opens_with_the_two_commands() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks[0].splitlines() == [
        "pip install . && nadi demo",
        "pip install -e '.[test]' && pytest",
    ]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 120


def test_links_between_pages_lead_somewhere() -> None:
    for page in WRITTEN:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_links_to_a_section_name_one() -> None:
    for page in WRITTEN:
        for target, section in re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", page.read_text()):
            text = (page.parent / target if target else page).read_text()
            titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in titles}
            assert section in anchors, f"{page.name}: {target}#{section}"


def test_files_that_pages_name_exist() -> None:
    """Paths in code marks, seen from the root, from the package, or from a package in it."""
    places = [ROOT, SOURCE, *(path for path in SOURCE.iterdir() if path.is_dir())]
    for page in WRITTEN:
        for name in re.findall(r"`((?:[\w*]+/)+[\w*]*(?:\.(?:py|md|pyi))?)`", page.read_text()):
            planned = page.name == "design.md" and name in PLANNED
            if planned or "NAME" in name or name.endswith("/s"):
                continue
            assert any(list(place.glob(name.rstrip("/"))) for place in places), (
                f"{page.name}: {name}"
            )


def test_the_design_page_names_modules_of_the_simulator() -> None:
    section = (DOCS / "design.md").read_text().split("## Inside the simulation")[1]
    named = set(re.findall(r"`(\w+)`", section.split("\n## ")[0]))
    assert len(named) > 40
    assert named <= {path.stem for path in SOURCE.rglob("*.py")}


def test_the_way_of_a_duration_names_files_and_functions() -> None:
    page = (DOCS / "architecture.md").read_text()
    steps = re.findall(r"^\| \d+ \| `([\w/.]+)` \| `(\w+)` \|", page, re.MULTILINE)
    assert len(steps) == 18
    for file, name in steps:
        tree = ast.parse((SOURCE / file).read_text())
        defined = {node.name for node in tree.body
                   if isinstance(node, (ast.FunctionDef, ast.ClassDef))}  # fmt: skip
        defined |= {target.id for node in tree.body if isinstance(node, ast.Assign)
                    for target in node.targets if isinstance(target, ast.Name)}  # fmt: skip
        assert name in defined, f"{file}: {name}"
