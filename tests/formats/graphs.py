"""Small traces with names, kinds and absent ids that are hard to write, for graph formats."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from nadi.trace.attributes import AttributeBuilder
from nadi.trace.issues import IssueLog
from nadi.trace.schema import DEPS, GROUPS, NODES
from nadi.trace.trace import Provenance, Trace

# what XML 1.0, DOT or CSV write in other ways, and what the first cannot hold at all
HARD_NAMES = [
    "plain",
    "",
    "a<b>&amp;&lt;\"quoted\" 'single'",
    "comma, semi; tab\tline\nreturn\rboth\r\nend\\",
    "]]> <!-- --> \\N \\G \\\\ {a|b}",
    "日本語 \U0001f600 \u2028",
    "zero\x00 bell\x07 escape\x1b \ufffe",
    "plain",
]
TURNS = "reads \u202ebackwards\u202c \u2067isolated\u2069 \u200f"
SHOWN_NAMES = [*HARD_NAMES, TURNS]
REPLACED = {
    "zero\x00 bell\x07 escape\x1b \ufffe": "zero\ufffd bell\ufffd escape\ufffd \ufffd",
    TURNS: "reads \ufffdbackwards\ufffd \ufffdisolated\ufffd \ufffd",
}


def make_trace(
    names: list[str],
    deps: Sequence[tuple[int, int, str]] = (),
    absent: Sequence[tuple[int, str, int]] = (),
) -> Trace:
    """Make a trace of device work whose ids are ten times its rows, plus three.

    Parameters
    ----------
    names
        One per node.
    deps
        Source row, target row and kind of each dependency.
    absent
        Row that waits, attribute's name and the id it waits for, of dependencies that the
        file gives on nodes it does not have.
    """
    builder = AttributeBuilder()
    builder.add(-1, "schema", "string", "1")
    for row, name, number in absent:
        builder.add(row, name, "dependency", number)
    columns = {
        "id": [10 * row + 3 for row in range(len(names))],
        "name": names,
        "kind": "COMP",
        "category": "kernel",
    }
    return Trace(
        nodes=NODES.build(len(names), columns),
        deps=pl.DataFrame(
            [(src, dst, kind, False) for src, dst, kind in deps], schema=DEPS.dtypes, orient="row"
        ),
        groups=GROUPS.build(1, {"name": ["a, b"], "ranks": [[0, 2, 5]]}),
        issues=IssueLog().table(),
        provenance=Provenance("1", ()),
        given_attributes=builder.build(),
    )


def counted(log: IssueLog) -> dict[str, int]:
    """Give how often each issue was met."""
    return dict(log.table().select("code", "count").iter_rows())
