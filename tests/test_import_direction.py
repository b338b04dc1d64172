"""Lower layers never import higher ones, and siblings do not import each other."""

from __future__ import annotations

import ast
from pathlib import Path

import nadi

SOURCE = Path(nadi.__file__).parent
# docs/design.md shows the same list; modules of one entry are siblings
LAYERS = [
    {"errors", "progress", "units", "version", "wire"},
    {"kernels"},
    {"tables"},
    {"schema"},
    {"attributes"},
    {"operands", "device_frames"},
    {"issues", "provenance", "trace", "schedule"},
    {"validate"},
    {"formats"},
    {"link"},
    {"feed"},
    {"discover"},
    {"loading"},
    {"overheads"},
    {"graph"},
    {"graph_builder", "networkx_graphs"},
    {"export"},
    {"steps", "hta"},
    {"critical_paths"},
    {"analyze"},
    {"whatif"},
    {"reordering"},
    {"simulator"},
    {"result"},
    {"report"},
    {"pipeline", "conversion", "linking"},
    {"cli"},
    {"__main__"},
]
# a trace holds its provenance
SIBLINGS_ALLOWED = {("trace", "provenance")}


def layer_of(module: str) -> int:
    return next(number for number, layer in enumerate(LAYERS) if module in layer)


def imports_of(path: Path) -> list[str]:
    """Give the top-level modules of nadi that a file imports, anywhere in it."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "nadi":
                names = [f"nadi.{alias.name}" for alias in node.names]
            elif node.module:
                names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found += [name.split(".")[1] for name in names if name.startswith("nadi.")]
    return found


def test_every_module_has_a_layer() -> None:
    modules = {path.stem if path.is_file() else path.name for path in SOURCE.iterdir()}
    modules -= {"__init__", "__pycache__", "py", "data"}
    assert modules == set().union(*LAYERS)


def test_no_module_imports_a_higher_layer_or_a_sibling() -> None:
    wrong = []
    for path in SOURCE.rglob("*.py"):
        own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        for other in imports_of(path):
            if other == own or (own, other) in SIBLINGS_ALLOWED:
                continue
            if layer_of(other) >= layer_of(own):
                wrong.append(f"{path.relative_to(SOURCE)} imports {other}")
    assert wrong == []


def test_the_design_page_lists_the_same_layers() -> None:
    page = (SOURCE.parents[1] / "docs" / "design.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    listed = [{name.strip("/") for name in row.replace("`", " ").split()} for row in rows]
    assert listed == LAYERS


KERNEL_MODULES = {"numpy", "numba", "llvmlite", "nadi", "collections", "typing"}


def test_kernels_know_numba_and_numpy_only() -> None:
    for path in (SOURCE / "kernels").glob("[a-z]*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module != "__future__":
                root = str(node.module).split(".")[0]
                assert root in KERNEL_MODULES, f"{path.name} imports {node.module}"
