"""The import graph: data moves one way, and nothing imports in a circle.

Every spelling counts: imports within functions, those for type checkers, ``import nadi``, and names
that packages load lazily.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx

import nadi

SOURCE = Path(nadi.__file__).parent
# from the bottom up; docs/design.md shows the same list
LAYERS = [
    "version", "units", "errors", "forks", "progress", "kernels", "model", "formats", "charts",
    "link", "folding", "feed", "graph", "analyze", "workload", "generate", "simulator", "pricing",
    "scaling", "placement", "estimate", "whatif", "waiting", "extraction", "obfuscation",
    "synthesis", "comparison", "load", "collect", "replay", "pipeline", "report", "cli",
    "__main__",
]  # fmt: skip
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


def layer_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_every_module_has_a_layer() -> None:
    assert {layer_of(module) for module in MODULES} - {""} == set(LAYERS)


def test_no_module_imports_a_higher_layer() -> None:
    wrong = [
        f"{module} imports {imported}"
        for module, imported in import_graph().edges
        if module != "nadi"
        and layer_of(module) != layer_of(imported)
        and (
            imported == "nadi"
            or LAYERS.index(layer_of(imported)) > LAYERS.index(layer_of(module))
        )
    ]  # fmt: skip
    assert wrong == []


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
            if all(m.startswith(f"{place}.") for m in pair) and all(len(n) > 1 for n in names):
                inner.add_edge(names[0][0], names[1][0])
        circles = [sorted(c) for c in nx.strongly_connected_components(inner) if len(c) > 1]
        assert circles == [], place


def test_no_name_of_a_file_is_used_twice() -> None:
    stems = [path.stem for path in MODULES.values() if path.stem != "__init__"]
    assert sorted({stem for stem in stems if stems.count(stem) > 1}) == []


def test_the_design_page_lists_the_same_layers() -> None:
    page = (SOURCE.parents[1] / "docs" / "design.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    listed = [name.strip("/") for row in rows for name in row.replace("`", " ").split()]
    assert [name for name in listed if name in LAYERS] == LAYERS


# what compiles, finds and loads kernels
COMPILING = {
    "build_kernels", "kernel_cache", "compile_ahead", "jit", "numba_columns", "numba_internals",
    "numba_intrinsics", "numba_public", "object_code", "signatures", "source_digest",
}  # fmt: skip


def test_kernels_know_numpy_only() -> None:
    kernels = [
        *(path for path in SOURCE.glob("kernels/*.py") if path.stem not in COMPILING),
        *SOURCE.glob("simulator/engine/[a-z]*.py"),
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
