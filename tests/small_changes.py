"""Change constants, comparisons and signs one at a time: do the tests beside a module fail?

``python tests/small_changes.py [--count 60] [--seed 0]`` draws changes of the packages that find
and explain times, runs the tests of the package for each, and prints those that none noticed.
Some of these change nothing that can be seen, such as the size of memory that is only written.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "nadi"
PACKAGES = ("analyses", "whatif", "recordings")
MODULES = ("graph/overheads.py",)
OTHER_SIGN = {
    "<=": "<", ">=": ">", "==": "!=", "!=": "==", "<": "<=", ">": ">=", "+": "-", "-": "+",
    "&": "|", "|": "&", "and": "or", "or": "and",
}  # fmt: skip
OTHER_NAME = {"min": "max", "minimum": "maximum", "any": "all", "floor": "ceil", "argmin": "argmax"}
OTHER_NAME |= {other: name for name, other in OTHER_NAME.items()}
OF_LIBRARIES = ("strict", "maintain_order", "dtype")  # keywords that say how, and not what
LIMIT_S = 600


class Change(NamedTuple):
    """Bytes of a module that others take the place of."""

    module: Path
    begin: int
    end: int
    new: str

    def __str__(self) -> str:
        source = self.module.read_bytes()
        line = source[: self.begin].count(b"\n")
        old = source[self.begin : self.end].decode()
        text = source.splitlines()[line].decode().strip()
        return f"{self.module.relative_to(SOURCE)}:{line + 1} {old!r} -> {self.new!r} in {text}"


def changes_of(module: Path) -> Iterator[Change]:
    """Give all changes of a module."""
    source = module.read_bytes()
    lines = list(accumulate(map(len, source.splitlines(keepends=True)), initial=0))
    for node in expressions(ast.parse(source)):
        for one, other in operands(node):
            begin = lines[(one.end_lineno or 0) - 1] + (one.end_col_offset or 0)
            text = source[begin : lines[other.lineno - 1] + other.col_offset].decode()
            found = [(text.index(sign), sign) for sign in OTHER_SIGN if sign in text][:1]
            for at, sign in found:  # signs of two letters come before those of one
                yield Change(module, begin + at, begin + at + len(sign), OTHER_SIGN[sign])
        for place, old, new in words(node):
            end = lines[(place.end_lineno or 0) - 1] + (place.end_col_offset or 0)
            yield Change(module, end - len(old), end, new)


def operands(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Give the pairs of operands between which a sign stands."""
    match node:
        case ast.Compare(left=left, comparators=others):
            yield from pairwise([left, *others])
        case ast.BoolOp(values=values):
            yield from pairwise(values)
        case ast.BinOp(left=one, right=other):
            yield one, other


def words(node: ast.AST) -> Iterator[tuple[ast.expr, str, str]]:
    """Give names and constants, what is written there, and what may stand there instead."""
    match node:
        case ast.Constant(value=bool(value)):
            yield node, str(value), str(not value)
        case ast.Constant(value=int(value)):
            written = "_" * ((node.end_col_offset or 0) - node.col_offset)
            yield node, written, str(value + 1)
            if value > 0:
                yield node, written, str(value - 1)
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in OTHER_NAME:
            yield node, name, OTHER_NAME[name]
        case ast.keyword(arg="side", value=ast.Constant(value=str(side)) as place):
            yield place, f'"{side}"', '"left"' if side == "right" else '"right"'


def expressions(node: ast.AST) -> Iterator[ast.AST]:
    """Give what stands in a tree, besides texts, decorators and keywords of libraries."""
    for name, value in ast.iter_fields(node):
        for inner in value if isinstance(value, list) else [value]:
            is_text = isinstance(inner, ast.JoinedStr) or name in ("decorator_list", "annotation")
            is_how = isinstance(inner, ast.keyword) and inner.arg in OF_LIBRARIES
            if isinstance(inner, ast.AST) and not is_text and not is_how:
                yield inner
                yield from expressions(inner)


def tests_beside(module: Path) -> list[str]:
    """Give the tests of a module's package, those first that name the module."""
    folder, name = module.relative_to(SOURCE).parts[0], module.stem.removesuffix("_kernels")
    files = sorted((ROOT / "tests" / folder).rglob("test_*.py"))
    if module.relative_to(SOURCE).as_posix() in MODULES:
        files = [file for file in files if name.removesuffix("s") in file.stem]
    return [str(file) for file in sorted(files, key=lambda file: name not in file.read_text())]


def is_noticed(change: Change, folder: Path) -> bool:
    """Run tests with a copy of the package, in which the change is made and taken back."""
    copy = folder / "nadi" / change.module.relative_to(SOURCE)
    whole = copy.read_bytes()
    copy.write_bytes(whole[: change.begin] + change.new.encode() + whole[change.end :])
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-n0", *tests_beside(change.module)],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:  # a loop that does not end
        return True
    finally:
        copy.write_bytes(whole)
    return done.returncode != 0


def main() -> None:
    """Print what was tried, and how many changes were noticed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    modules = [file for package in PACKAGES for file in sorted((SOURCE / package).rglob("*.py"))]
    modules += [SOURCE / name for name in MODULES]
    every = [change for module in modules for change in changes_of(module)]
    drawn = random.Random(chosen.seed).sample(every, min(chosen.count, len(every)))
    num_noticed = 0
    with tempfile.TemporaryDirectory() as folder:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(SOURCE, Path(folder) / "nadi", ignore=ignored)
        for change in drawn:
            found = is_noticed(change, Path(folder))
            num_noticed += found
            print("noticed" if found else "SURVIVED", change, flush=True)
    print(f"{num_noticed} of {len(drawn)} noticed")


if __name__ == "__main__":
    main()
