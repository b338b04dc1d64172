"""Tables of the text output: texts go on in the next line in a terminal, and nowhere else."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from nadi.results.text import make_table, name_cell, print_table, tell_apart
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


def test_different_names_that_look_alike_show_where_they_differ() -> None:
    head, tail = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_", "_WSGRA0_WSGRB0_WS64_WG64_4_1" * 2
    tiles = ["MT256x256x64", "MT256x48x64", "MT32x32x256"]
    table = make_table("", name="left")
    for tile in [*tiles, tiles[0]]:
        table.add_row(name_cell(head + tile + tail))
    table.add_row(name_cell("aten::mm"))
    print_table(table, Console(file=io.StringIO(), width=200))
    cells = [cell.plain for cell in table.columns[0].cells]  # type: ignore[union-attr]
    assert len(set(cells[:3])) == 3
    assert cells[3] == cells[0]
    assert all(cell[:16] == head[:16] and cell.endswith(tail[-11:]) for cell in cells[:4])
    assert all(tile[-5:] in cell for tile, cell in zip(tiles, cells, strict=False))
    assert all(len(cell) <= 59 for cell in cells)
    assert cells[4] == "aten::mm"


def test_a_compiled_graph_is_named_by_the_begin_of_its_key() -> None:
    keys = "fabcdefg" + "h" * 44, "fabcdefg" + "k" * 44, "fzzzzzzz" + "h" * 44
    alone, *alike = (name_cell(f"## Call CompiledFxGraph {key} ##") for key in (keys[2], *keys[:2]))
    tell_apart([alone, *alike])
    assert alone.plain == "compiled graph fzzzzzzz"
    assert name_cell("## Call CompiledFxGraph ##").plain == "compiled graph"  # of two recordings
    assert alike[0].plain != alike[1].plain
    assert "hhhh" in alike[0].plain


def test_a_long_name_alone_is_cut_in_the_middle() -> None:
    table = make_table("", name="left")
    for _ in range(2):
        table.add_row(name_cell("a" * 40 + "b" * 40))
    print_table(table, Console(file=io.StringIO(), width=200))
    cells = [cell.plain for cell in table.columns[0].cells]  # type: ignore[union-attr]
    assert cells == [f"{'a' * 27} ... {'b' * 27}"] * 2
