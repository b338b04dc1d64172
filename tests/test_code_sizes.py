"""Modules under 600 lines, functions under 60, and at most eight parameters: CONTRIBUTING.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import nadi

PACKAGE = Path(nadi.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
# a parameter of a command is an option, which typer takes one by one
COMMANDS = {
    "analyses/command.py: command",
    "bottlenecks/checks/command.py: command",
    "pytorch/collecting/command.py: command",
    "simulation/alone/command.py: command",
    "bottlenecks/paths/command.py: command",
    "memory/tiers/command.py: command",
    "estimates/single/command.py: command",
    "sharing/parts/command.py: command",
    "jobs/generated/command.py: llm",
    "simulation/loggp/command.py: command",
    "jobs/generated/command.py: network",
    "memory/offloading/command.py: command",
    "serving/command.py: command",
    "sharing/conversion/link_command.py: command",
    "sharing/obfuscation/command.py: command",
    "memory/placement/command.py: command",
    "pytorch/rerunning/command.py: command",
    "bottlenecks/pages/report_command.py: command",
    "bottlenecks/steps/command.py: command",
    "bottlenecks/waiting/command.py: command",
    "jobs/scaled/command.py: command",
    "estimates/searches/command.py: command",
    "simulation/runs/command.py: command",
    "bottlenecks/changes/command.py: command",
    "sharing/synthesis/command.py: command",
    "sharing/synthesis/learn_command.py: command",
}


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield every function and method, wherever it stands, by file and name."""
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield f"{module.relative_to(PACKAGE).as_posix()}: {node.name}", node


def num_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the parameters but for the object of a method, ``*these`` and ``**these`` as one."""
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    named = named[named[:1] != [] and named[0].arg in ("self", "cls") :]
    return len(named) + (given.vararg is not None) + (given.kwarg is not None)


def test_modules_are_under_900_lines() -> None:
    lines = {module.name: len(module.read_text().splitlines()) for module in MODULES}
    assert {name: size for name, size in lines.items() if size >= 900} == {}


def test_functions_are_under_60_lines() -> None:
    # from def to the end, with parameters and docstring
    lines = {name: (node.end_lineno or 0) - node.lineno + 1 for name, node in functions()}
    assert len(lines) > 2000
    assert {name: size for name, size in lines.items() if size >= 60} == {}


def test_functions_take_at_most_eight_parameters() -> None:
    found = {name for name, node in functions() if num_parameters(node) > 8}
    assert found == COMMANDS
