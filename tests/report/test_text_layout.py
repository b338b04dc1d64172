"""Tables of the text output: texts go on in the next line in a terminal, and nowhere else."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from nadi.results.text import make_table, print_table
from nadi.units import format_change


def test_a_table_in_a_pipe_is_as_wide_as_it_needs() -> None:
    table = make_table("title", first="left", second="right")
    table.add_row("a" * 150, "b" * 100)
    file = io.StringIO()
    console = Console(file=file, width=80, soft_wrap=True)
    print_table(table, console)
    assert f"{'a' * 150}  {'b' * 100}\n" in file.getvalue()
    assert console.width == 80


def test_no_text_is_cut_in_a_narrow_terminal() -> None:
    table = make_table("title", name="left", time="right")
    table.add_row("aten::native_layer_norm_backward", "12 ms")
    file = io.StringIO()
    print_table(table, Console(file=file, width=20))
    lines = file.getvalue().splitlines()[2:]
    assert "".join(line[:13].strip() for line in lines) == "aten::native_layer_norm_backward"


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
