"""Make a notebook of each tutorial, run the code of notebooks, and keep what their cells show."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nadi.cli import main

ROOT = Path(__file__).resolve().parents[1]
TUTORIALS = ROOT / "docs" / "tutorials"
PAGES = [page for page in sorted(TUTORIALS.glob("*.md")) if page.name != "README.md"]
DOWNLOADED = {"vit.json.gz": ROOT.parent / "shared" / "data" / "wild" / "h100_vit.json.gz"}
FENCE = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
# the lines of a shell that a notebook runs; others, such as those of a simulator, stay text
RUN = re.compile(r"(?:nadi|cd|curl|ln|openssl)\b")
DRAWN = re.compile(r"^!\[[^\]]*\]\(([\w-]+\.svg)\)$", re.MULTILINE)


def missing(page: Path) -> list[str]:
    """Name the recordings of a tutorial that are downloaded, and are not beside the repository."""
    text = page.read_text(encoding="utf-8")
    return [name for name, path in DOWNLOADED.items() if name in text and not path.exists()]


def prepare(folder: Path) -> None:
    """Place what the tutorials and other pages read into a folder."""
    folder.mkdir(exist_ok=True)
    (folder / "demo").symlink_to(ROOT / "src" / "nadi" / "data" / "demo")
    for name in ("estimate", "recordings"):
        for file in (ROOT / "examples" / name).iterdir():
            (folder / file.name).symlink_to(file)
    for name, path in DOWNLOADED.items():
        (folder / name).symlink_to(path)
    (folder / "jobs.csv").write_text(
        "job,family,layers,hidden,sequence,dp,global_batch\ndemo,gpt,2,128,8,4,4\n",
        encoding="utf-8",
    )
    (folder / "my.key").write_text("7f3a91c04d5e2b68f1a07c93d2e845b6\n", encoding="utf-8")


def notebook_of(page: Path, folder: Path) -> tuple[str, dict[str, str]]:
    """Make the notebook of a tutorial, run in a folder that is prepared.

    Returns
    -------
    tuple
        The text of the notebook, and the pictures of the page that its cells draw, by name.
    """
    parts = list(_parts_of(page.read_text(encoding="utf-8")))
    cells = [cell for cell, _ in parts]
    drawn = _run(cells, folder)
    pictures = {
        name: drawn[place] if place in drawn else _written_to(folder, name)
        for place, (_, name) in enumerate(parts)
        if name
    }
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    notebook = {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 4}
    return _written(notebook), pictures


def _written_to(folder: Path, name: str) -> str:
    """Give a picture that a command wrote: a file, or tiers/step.svg for tiers-step.svg."""
    inside = folder / name.replace("-", "/", 1)
    return (inside if inside.exists() else folder / name).read_text(encoding="utf-8")


def executed(path: Path) -> str:
    """Run the cells of a notebook in order; gives its text, each with its new output."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    _run(notebook["cells"], path.parent)
    return _written(notebook)


def _parts_of(text: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Give the cells of a page, each with the name of the picture that it draws, if any.

    Text is a cell, and so is each command and each piece of Python. Outputs are left out.
    """
    pieces = FENCE.split(text)
    kept, last, figure, run = "", "", "", set()
    for said, kind, code, after in zip(
        pieces[::3], [*pieces[1::3], ""], [*pieces[2::3], ""], [*pieces[3::3], ""], strict=True
    ):
        kept += said.replace(figure, "", 1)
        source, figure = _code_of(kind, code), ""
        if (kind == "text" and last == "python" and not said.strip()) or source in run:
            continue  # what a cell shows, or shows a part of
        last = kind
        if kind and not source:  # a listing, which nobody runs
            kept += f"```{kind}\n{code}```\n"
            continue
        if kept.strip():
            yield {"cell_type": "markdown", "metadata": {}, "source": _lines(kept.strip())}, ""
        kept = ""
        if source:
            run.add(source)
            drawn = DRAWN.match(after.lstrip())
            figure = drawn[0] if drawn and kind == "python" else ""  # which the cell shows
            yield {"cell_type": "code", "execution_count": 0, "metadata": {}, "outputs": [],
                   "source": _lines(source)}, drawn[1] if drawn else ""  # fmt: skip


def _code_of(kind: str, code: str) -> str:
    """Give the lines of a cell of a block; none if a notebook does not run it."""
    if kind == "python":
        return code.strip()
    if kind == "console":
        return "!" + code.partition("\n")[0].removeprefix("$ ")
    lines = re.split(r"(?<!\\)\n", code.strip())
    if kind != "sh" or not all(RUN.match(line) for line in lines):
        return ""
    return "\n".join(
        line.replace("cd ", "%cd ../../", 1) if line.startswith("cd ") else f"!{line}"
        for line in lines
    )


def _run(cells: list[dict[str, Any]], folder: Path) -> dict[int, str]:
    """Run the cells in a folder, and keep in each what it shows; gives the figures by cell."""
    names: dict[str, Any] = {}
    figures: dict[int, str] = {}
    number = 0
    with contextlib.chdir(folder):
        for place, cell in enumerate(cells):
            if cell["cell_type"] != "code":
                continue
            number += 1
            cell["execution_count"] = number
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                value = _value_of("".join(cell["source"]), names, number)
            cell["outputs"] = list(_outputs(printed.getvalue(), value, number))
            if hasattr(value, "svg"):
                figures[place] = value.svg()[0]
    return figures


def _outputs(printed: str, value: Any, number: int) -> Iterator[dict[str, Any]]:
    """Give what a cell shows: what it prints, and the value of its last line."""
    if printed:
        text = [f"{line.rstrip()}\n" for line in printed.splitlines()]
        yield {"output_type": "stream", "name": "stdout", "text": text}
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = _lines(value._repr_html_())
        yield {"output_type": "execute_result", "execution_count": number, "metadata": {},
               "data": data}  # fmt: skip


def _value_of(code: str, names: dict[str, Any], number: int) -> Any:
    """Run a cell; gives the value of its last line. Recordings are fetched before."""
    if code[0] in "!%":
        for line in code.splitlines():
            # 1: a budget is exceeded
            if line.startswith("!nadi ") and main(shlex.split(line)[1:]) not in (0, 1):
                raise RuntimeError(line)
        return None
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, f"cell {number}", "exec"), names)  # noqa: S102  what a notebook is for
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)  # noqa: S307


def _written(notebook: dict[str, Any]) -> str:
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)
