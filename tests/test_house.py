"""The import graph: data moves one way, and nothing imports in a circle.

Every spelling counts: imports within functions, those for type checkers, ``import nadi``, and names
that packages load lazily.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx

import nadi

SOURCE = Path(nadi.__file__).parent
# from the bottom up; docs/design.md shows the same lists
GROUND = [
    "version",
    "old_names",
    "units",
    "errors",
    "forks",
    "progress",
    "kernels",
    "trace",
    "files",
    "results",
]
ENGINES = ["systems", "recordings", "models", "graph", "whatif", "simulation"]
ROOMS = [
    "analyses", "bottlenecks", "estimates", "memory", "serving", "jobs", "sharing", "pytorch",
]  # fmt: skip
TOP = ["cli", "__main__"]
FLOORS = [*GROUND, *ENGINES, *ROOMS, *TOP]
# rooms do not know each other, but for these: why stands in docs/design.md
ARROWS = {
    ("bottlenecks", "analyses"), ("memory", "estimates"), ("pytorch", "analyses"),
    ("serving", "estimates"),
}  # fmt: skip
# kernels are compiled: they take arrays, and know nothing that numba does not
KERNEL_MODULES = {"collections", "nadi", "numpy", "typing"}


def module_name(path: Path) -> str:
    parts = ("nadi", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in SOURCE.rglob("*.py")}


def imports_of(name: str) -> Iterator[str]:
    """Give the modules of nadi that a module imports, anywhere in it."""
    path = MODULES[name]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("nadi"))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import"
            if str(node.module).split(".")[0] == "nadi":
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    yield inner if inner in MODULES else str(node.module)
        elif (
            isinstance(node, ast.Constant) and "." in str(node.value) and name.endswith("registry")
        ):
            place = f"nadi.files.{node.value}".rpartition(".")[0]
            if place in MODULES:
                yield place
    if path.with_suffix(".pyi").exists():  # the names of a package, loaded when first used
        for node in ast.walk(ast.parse(path.with_suffix(".pyi").read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                yield f"{name}.{node.module}"
            elif isinstance(node, ast.ImportFrom):
                yield from (f"{name}.{alias.name}" for alias in node.names)


@cache
def import_graph() -> nx.DiGraph:
    """Give the modules, and from each an edge to those that it imports."""
    pairs = ((name, imported) for name in MODULES for imported in imports_of(name))
    return nx.DiGraph(pair for pair in pairs if pair[0] != pair[1])


def floor_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_every_module_has_a_floor() -> None:
    assert {floor_of(module) for module in MODULES} - {""} == set(FLOORS)


def may_import(above: str, below: str) -> bool:
    """Tell whether a module of one floor may import one of another."""
    if above in ROOMS and below in ROOMS:
        return (above, below) in ARROWS
    return FLOORS.index(below) < FLOORS.index(above)


def test_imports_go_down_and_rooms_do_not_know_each_other() -> None:
    wrong = [
        f"{module} imports {imported}"
        for module, imported in import_graph().edges
        if module != "nadi"
        and floor_of(module) != floor_of(imported)
        and (imported == "nadi" or not may_import(floor_of(module), floor_of(imported)))
    ]
    assert wrong == []


def test_every_arrow_between_rooms_is_one_that_is_used() -> None:
    used = {(floor_of(module), floor_of(imported)) for module, imported in import_graph().edges}
    assert used >= ARROWS


def test_a_command_is_declared_in_its_room() -> None:
    in_cli = {path.stem for path in SOURCE.glob("cli/*_command.py")}
    assert in_cli == {"info_command"}  # it knows all kinds of files


def test_only_one_room_imports_torch() -> None:
    using = {
        floor_of(name) for name, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Call)
        and re.match(r"(import|from|importlib\.import_module\(') ?torch\b", ast.unparse(node))
    }  # fmt: skip
    assert using <= {"pytorch"}


def test_nothing_imports_in_a_circle() -> None:
    circles = [sorted(c) for c in nx.strongly_connected_components(import_graph()) if len(c) > 1]
    assert circles == []


def test_code_imports_from_modules_and_not_from_packages_that_export() -> None:
    exporting = {
        name for name in MODULES if MODULES[name].with_name("__init__.pyi").exists()
        and MODULES[name].stem == "__init__"
    }  # fmt: skip
    assert len(exporting) > 10
    wrong = [
        (m, imported)
        for m, imported in import_graph().edges
        if imported in exporting and m != "nadi"
    ]
    assert wrong == []


def test_packages_within_a_package_do_not_import_in_a_circle() -> None:
    for parent in {module.rpartition(".")[0] for module in MODULES if module.count(".") > 2}:
        place = parent.rpartition(".")[0]
        inner = nx.DiGraph()
        for pair in import_graph().edges:
            names = [module.removeprefix(f"{place}.").split(".") for module in pair]
            if pair[0].endswith("command"):  # commands stand above all of their room
                continue
            if all(m.startswith(f"{place}.") for m in pair) and all(len(n) > 1 for n in names):
                inner.add_edge(names[0][0], names[1][0])
        circles = [sorted(c) for c in nx.strongly_connected_components(inner) if len(c) > 1]
        assert circles == [], place


def test_the_design_page_lists_the_same_floors() -> None:
    page = (SOURCE.parents[1] / "docs" / "design.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    listed = [name.strip("/") for row in rows for name in row.replace("`", " ").split()]
    assert [name for name in listed if name in FLOORS] == FLOORS


# what compiles, finds and loads kernels
COMPILING = {
    "build_kernels", "kernel_cache", "compile_ahead", "jit", "numba_columns", "numba_internals",
    "numba_intrinsics", "numba_public", "object_code", "signatures",
}  # fmt: skip


def test_kernels_know_numpy_only() -> None:
    kernels = [
        *(path for path in SOURCE.glob("kernels/*.py") if path.stem not in COMPILING),
        *SOURCE.glob("simulation/engine/[a-z]*.py"),
        *SOURCE.rglob("*_kernels.py"),
    ]
    kernels = [path for path in kernels if path.stem not in COMPILING]
    assert len(kernels) > 40
    for path in kernels:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module != "__future__":
                root = str(node.module).split(".")[0]
                assert root in KERNEL_MODULES, f"{path.name} imports {node.module}"


def test_inner_parts_of_libraries_are_used_in_three_files() -> None:
    """And numba is imported by what is loaded when something has to be compiled, alone."""
    for name, path in MODULES.items():
        if path.stem in ("numba_internals", "numba_intrinsics", "typer_internals"):
            continue
        may_import = path.stem in ("numba_public", "numba_columns")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                imported = [str(node.module)]
            elif isinstance(node, ast.Import):
                imported = [alias.name for alias in node.names]
            else:
                continue
            for module in imported:
                assert not module.startswith("numba") or may_import, f"{name}: {module}"
                assert not module.startswith(("numba.core", "typer.core")), f"{name}: {module}"
