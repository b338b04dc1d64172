"""The results of ``nadi reorder``: a row per move, what blocks the others, what was applied."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from nadi.results.text import make_table, name_cell, print_table, rank_ranges
from nadi.units import format_count, format_ns, format_percent, printable
from nadi.whatif.reordering.move_search import Candidate, Reordering

__all__ = ["describe_reordering", "print_reordering"]


_HAZARDS = {"raw": "read after write", "war": "write after read", "waw": "write after write"}


def describe_reordering(answer: Reordering, top: int) -> dict[str, Any]:
    """Compute the JSON output with the best ``top`` moves; times are int ns."""
    found, together = answer.found, answer.together
    origin = answer.start_ns
    return {
        "window": answer.window.name,
        "measured_ns": found.step_ns,
        "operations": found.num_units,
        "may_pass_another": found.num_free,
        "could_gain": found.num_hopeful,
        "moves_tried": found.num_simulated,
        "held_by": found.blocked,
        "moves": [_describe(one, origin) for one in found.candidates[:top]],
        "applied": [_describe(one, origin) for one in answer.applied],
        "after_all": None
        if together is None
        else {
            "step_ns": together.step_ns,
            "gain_ns": together.gain_ns,
            "bound_by_kind": together.bound_by[0].replace(" ", "_"),
            "bound_by_operation": together.bound_by[1],
        },
    }


def _describe(one: Candidate, origin: int) -> dict[str, Any]:
    return {
        "operation": one.name,
        "kind": one.kind,
        "ranks": list(one.ranks),
        "operations_moved": one.num_moved,
        "right_after": one.change.after,
        "held_there_by": one.held_by,
        "start_ns": one.start_ns - origin,
        "legal_start_ns": one.legal_ns - origin,
        "legal_start_without_reuse_of_memory_ns": one.renamed_ns - origin,
        "new_start_ns": one.new_start_ns - origin,
        "gain_ns": one.gain_ns,
        "step_ns": one.step_ns,
        "nodes": [
            {"rank": move.rank, "rows": list(move.rows), "after": move.after}
            for move in one.change.moves
        ],
    }


def print_reordering(answer: Reordering, top: int, console: Console) -> None:
    """Print the page of text."""
    data = describe_reordering(answer, top)
    measured = data["measured_ns"]
    count = {key: format_count(data[key]) for key in
             ("operations", "may_pass_another", "could_gain", "moves_tried")}  # fmt: skip
    console.print(Text(
        f"{data['window']}: measured {format_ns(measured)}\n"
        f"{count['operations']} operations, {count['may_pass_another']} can move before another "
        f"one; {count['could_gain']} could shorten the step, {count['moves_tried']} moves tried"
    ))  # fmt: skip
    if data["held_by"]:
        held = (f"{_reason(name)} {format_count(n)}" for name, n in data["held_by"].items())
        console.print(Text(f"the others are blocked by: {', '.join(held)}"))
    if data["moves"]:
        _print_moves("operations that can start earlier", data["moves"], console)
    else:
        console.print(Text("no operation that can start earlier shortens the step"))
    if data["applied"]:
        _print_moves("applied moves, in order", data["applied"], console)
        after = data["after_all"]
        console.print(Text(
            f"after all moves: {format_ns(after['step_ns'])}, {format_ns(after['gain_ns'])} less "
            f"({format_percent(after['gain_ns'], measured)}); new bottleneck: "
            f"{after['bound_by_kind'].replace('_', ' ')}, mostly "
            f"{printable(after['bound_by_operation']) or 'between operations'}"
        ))  # fmt: skip


def _reason(name: str) -> str:
    """Return why an operation cannot pass another one, in words."""
    return _HAZARDS.get(name, printable(name))


def _print_moves(title: str, moves: list[dict[str, Any]], console: Console) -> None:
    table = make_table(
        title,
        **{"operation": "left", "with it": "right", "ranks": "left", "start": "right",
           "earlier": "right", "at most": "right", "gain": "right", "moved after": "left",
           "blocked by": "left"},
    )  # fmt: skip
    for row in moves:
        start = row["start_ns"]
        table.add_row(
            name_cell(row["operation"]), format_count(row["operations_moved"] - 1),
            rank_ranges(row["ranks"]), format_ns(start),
            format_ns(start - row["new_start_ns"]), format_ns(start - row["legal_start_ns"]),
            format_ns(row["gain_ns"]),
            name_cell(row["right_after"]), _reason(row["held_there_by"]),
        )  # fmt: skip
    print_table(table, console)
