"""The results of ``nadi what-if --reorder``: moves, what blocks others, what was applied."""

from collections.abc import Iterator
from typing import Any

from nadi.bottlenecks.steps.answers import measured_line
from nadi.results.declared import ALL, COUNT, NAME, NS, RANKS, Column, Lines, Result, Rows, in_words
from nadi.units import format_count, format_ns, format_percent, printable
from nadi.whatif.reordering.move_search import Candidate, Reordering

_HAZARDS = {"raw": "read after write", "war": "write after read", "waw": "write after write"}


def _described(asked: tuple[Reordering, int]) -> dict[str, Any]:
    """Compute the JSON output with the best moves, so many; times are int ns."""
    answer, top = asked
    found, together = answer.found, answer.together
    origin = answer.start_ns
    return {
        "window": answer.window.name,
        "num_steps": answer.window.num_steps,
        "measured_ns": found.window_ns,
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
            "window_ns": together.window_ns,
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
        "window_ns": one.window_ns,
        "nodes": [
            {"rank": move.rank, "rows": list(move.rows), "after": move.after}
            for move in one.change.moves
        ],
    }


def _first_lines(data: dict[str, Any]) -> Iterator[str]:
    count = {key: format_count(data[key]) for key in
             ("operations", "may_pass_another", "could_gain", "moves_tried")}  # fmt: skip
    yield measured_line(data)
    yield (
        f"{count['operations']} operations, {count['may_pass_another']} can move before another "
        f"one; {count['could_gain']} could shorten the window, {count['moves_tried']} moves tried"
    )
    if data["held_by"]:
        held = (f"{_reason(name)} {format_count(n)}" for name, n in data["held_by"].items())
        yield f"the others are blocked by: {', '.join(held)}"


def _last_line(data: dict[str, Any]) -> Iterator[str]:
    after = data["after_all"]
    if after:
        yield (
            f"after all moves: {format_ns(after['window_ns'])}, {format_ns(after['gain_ns'])} less "
            f"({format_percent(after['gain_ns'], data['measured_ns'])}); new bottleneck: "
            f"{after['bound_by_kind'].replace('_', ' ')}, mostly "
            f"{printable(after['bound_by_operation']) or 'between operations'}"
        )


def _reason(name: str) -> str:
    """Return why an operation cannot pass another one, in words."""
    return _HAZARDS.get(name, printable(name))


_COLUMNS = (
    Column("operation", "operation", NAME, "what starts earlier"),
    Column("operations_moved", "with it", COUNT, "operations that it needs, moved too",
           shown=lambda row: row["operations_moved"] - 1),
    Column("ranks", "ranks", RANKS, "where it is moved"),
    Column("start_ns", "start", NS, "measured"),
    Column("new_start_ns", "earlier", NS, "how much earlier it starts",
           shown=lambda row: row["start_ns"] - row["new_start_ns"]),
    Column("legal_start_ns", "at most", NS, "how much earlier its data allow",
           shown=lambda row: row["start_ns"] - row["legal_start_ns"]),
    Column("gain_ns", "gain", NS, "how much sooner the window ends"),
    Column("right_after", "moved after", NAME, "the operation before it"),
    Column("held_there_by", "blocked by", in_words(_reason), "why it is not earlier"),
)  # fmt: skip
_NONE = "no operation that can start earlier shortens the window"
REORDERING = Result(
    kind="reordering", title="Operations that can start earlier", order=17, facts=_described,
    headline=None,
    parts=(
        Lines(_first_lines),
        Rows("moves", "operations that can start earlier", None, _COLUMNS,
             lambda data: "" if data["moves"] else _NONE, top=ALL),
        Rows("applied", "applied moves, in order", None, _COLUMNS, top=ALL),
        Lines(_last_line),
    ),
)  # fmt: skip
"""Declared of what was found, and of how many moves are described."""
