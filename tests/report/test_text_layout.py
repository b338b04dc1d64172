"""Tables of the text output: cut nowhere but in a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from nadi.report.text_layout import make_table, print_table
from nadi.units import format_change


def test_a_table_in_a_pipe_is_as_wide_as_it_needs() -> None:
    table = make_table("title", first="left", second="right")
    table.add_row("a" * 150, "b" * 100)
    file = io.StringIO()
    console = Console(file=file, width=80, soft_wrap=True)
    print_table(table, console)
    assert f"{'a' * 150}  {'b' * 100}\n" in file.getvalue()
    assert console.width == 80


@pytest.mark.parametrize(
    ("after", "before", "decimals", "text"),
    [
        (97, 100, 1, "-3.0 %"),
        (102.5, 100, 2, "+2.50 %"),
        (1, 0, 1, "-"),
        (99_999, 100_000, 2, "0.00 %"),
    ],
)
def test_changes_have_a_sign(after: float, before: float, decimals: int, text: str) -> None:
    assert format_change(after, before, decimals) == text
