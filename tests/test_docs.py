"""Documents say what the code does: generated pages are current, examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nadi.cli.command_page import command_reference
from nadi.model.schema import data_model_page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
EXAMPLES = [
    (page.name, block)
    for page in sorted(DOCS.glob("*.md"))
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
]


def test_the_data_model_page_is_current() -> None:
    assert (DOCS / "data-model.md").read_text() == data_model_page(), "run: make docs"


def test_the_command_page_is_current() -> None:
    assert (DOCS / "cli.md").read_text() == command_reference(), "run: make docs"


@pytest.mark.parametrize(("page", "example"), EXAMPLES, ids=[page for page, _ in EXAMPLES])
def test_examples_run(page: str, example: str, demo_folder: Path, tmp_path: Path) -> None:
    exec(example, {"demo_folder": demo_folder, "output_folder": tmp_path})


def test_every_capability_page_has_an_example() -> None:
    with_example = {page for page, _ in EXAMPLES}
    assert with_example >= {"run.md", "linking.md", "event-graph.md", "formats.md", "inspect.md",
                             "redraw.md", "simulators.md", "feeder.md", "what-if.md",
                             "simulate.md", "systems.md"}  # fmt: skip


def test_the_readme_opens_with_the_two_commands() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks[0].splitlines() == [
        "pip install . && nadi demo",
        "pip install -e '.[test]' && pytest",
    ]


def test_links_between_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *DOCS.glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
