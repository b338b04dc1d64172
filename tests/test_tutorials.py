"""The notebook of each tutorial is its page, run; the page shows what the notebook prints."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from docs import notebooks
from tests.amounts import some
from tests.test_words import found_in

IDS = [page.stem for page in notebooks.PAGES]


def shown_parts(page: Path) -> list[tuple[str, str]]:
    """Give each command or piece of Python of a page, with the output that stands below it."""
    text = page.read_text()
    of_commands = re.findall(r"```console\n\$ ([^\n]*)\n(.*?)```", text, re.DOTALL)
    of_python = re.findall(r"```python\n(.*?)\n```\n\n```text\n(.*?)```", text, re.DOTALL)
    return [(f"!{command}", shown) for command, shown in of_commands] + of_python


@pytest.mark.usefixtures("demo_read_once")
@pytest.mark.parametrize("page", some(notebooks.PAGES), ids=some(IDS))
def test_the_notebook_is_the_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if notebooks.missing(page):
        pytest.skip("needs ../shared/data")
    monkeypatch.setenv("COLUMNS", "80")
    notebooks.prepare(tmp_path / "run")
    text, pictures = notebooks.notebook_of(page, tmp_path / "run")
    for name, made in {f"{page.stem}.ipynb": text, **pictures}.items():
        assert (page.parent / name).read_text() == made, "run: make docs"


@pytest.mark.parametrize("page", notebooks.PAGES, ids=IDS)
def test_the_page_shows_what_the_notebook_prints(page: Path) -> None:
    cells = json.loads(page.with_suffix(".ipynb").read_text())["cells"]
    printed = {
        "".join(cell["source"]): "".join(
            "".join(one["text"] if "text" in one else [*one["data"]["text/plain"], "\n"])
            for one in cell["outputs"]
        )
        for cell in cells
        if cell["cell_type"] == "code"
    }
    parts = shown_parts(page)
    assert parts
    for code, shown in parts:
        wanted = r"(?:.*\n)*?".join(re.escape(part) for part in shown.split("...\n"))
        assert re.fullmatch(wanted, printed[code]), f"{code}\n{printed[code]}"
        assert found_in(printed[code]) == []


@pytest.mark.parametrize("page", notebooks.PAGES, ids=IDS)
def test_a_tutorial_has_a_question_a_picture_and_its_notebook(page: Path) -> None:
    text = page.read_text()
    assert f"]({page.stem}.ipynb)" in text
    assert re.search(r"^!\[[^\]]{10,}\]\([\w-]+\.(?:svg|png)\)$", text, re.MULTILINE)
    assert {"## The recording", "## Next"} <= set(re.findall(r"^## .*$", text, re.MULTILINE))


def test_notebooks_are_small() -> None:
    assert max(path.stat().st_size for path in notebooks.TUTORIALS.glob("*.ipynb")) < 100_000
