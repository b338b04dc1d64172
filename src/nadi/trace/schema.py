"""All tables, each declared once, and the documentation page of them.

A declaration states what a row describes, and the name, type, unit, meaning and missing
value of every column. The checks of a table and the page ``docs/data-model.md`` are
derived from it; no other place defines a column. The declarations are in
:mod:`nadi.trace.tables`: traces and jobs in ``trace_tables``, analyses and simulations in
``result_tables``.
"""

from collections.abc import Sequence

import polars as pl

from nadi.trace.categories import (
    ATTRIBUTE_TYPES,
    CATEGORIES,
    COMM_TYPES,
    COMMUNICATION_KINDS,
    DEP_KINDS,
    DEVICE_WORK,
    GIVEN_DEPS,
    LABELS,
    NODE_KINDS,
    ON_DEVICE,
    PART,
    ROLE_SOURCES,
    SEVERITIES,
    TENSOR_DEPS,
    TENSOR_ROLES,
    THREAD_WORK,
    UNBOUNDED,
    UNREADABLE,
)
from nadi.trace.tables.result_tables import (
    COLLECTIVE_TIMES,
    JOB_TIMES,
    LINK_USE,
    LINKS,
    LIVE_MEMORY,
    PART_TENSORS,
    RANK_TIMES,
    SCHEDULE,
    TENSOR_LIVES,
    TIER_TRAFFIC,
    TIER_USE,
    TIER_WAITS,
    WAITS,
)
from nadi.trace.tables.trace_tables import (
    ATTRS,
    CLOCKS,
    DEPS,
    DEVICE_EVENTS,
    GROUPS,
    ISSUES,
    MATCHES,
    NODES,
    OPERANDS,
    TENSORS,
    Column,
    Table,
)

__all__ = [
    "ATTRIBUTE_TYPES", "ATTRS", "CATEGORIES", "CLOCKS", "COLLECTIVE_TIMES", "COMMUNICATION_KINDS",
    "COMM_TYPES", "DEPS", "DEP_KINDS", "DEVICE_EVENTS", "DEVICE_WORK", "GIVEN_DEPS", "GROUPS",
    "ISSUES", "JOB_TIMES", "LABELS", "LINKS", "LINK_USE", "LIVE_MEMORY", "MATCHES", "NODES",
    "NODE_KINDS", "ON_DEVICE", "OPERANDS", "PART", "PART_TENSORS", "RANK_TIMES", "ROLE_SOURCES",
    "SCHEDULE", "SEVERITIES", "TABLES", "TENSORS", "TENSOR_DEPS", "TENSOR_LIVES", "TENSOR_ROLES",
    "THREAD_WORK", "TIER_TRAFFIC", "TIER_USE", "TIER_WAITS", "UNBOUNDED", "UNREADABLE", "WAITS",
    "Column", "Table", "data_model_page",
]  # fmt: skip

TABLES: Sequence[Table] = (
    NODES, DEPS, GROUPS, ATTRS, TENSORS, OPERANDS, ISSUES, MATCHES, CLOCKS, SCHEDULE, DEVICE_EVENTS,
    LINKS, LINK_USE, JOB_TIMES, RANK_TIMES, COLLECTIVE_TIMES, LIVE_MEMORY, TIER_TRAFFIC, TIER_USE,
    TIER_WAITS, TENSOR_LIVES, WAITS, PART_TENSORS,
)  # fmt: skip


def data_model_page() -> str:
    """Return the text of the page ``docs/data-model.md``."""
    lines = [
        "# Data model",
        "",
        "Generated from `src/nadi/trace/tables/` by `make docs`; edit there.",
        "",
        "Time is int64 nanoseconds and size is int64 bytes. A missing number is -1; no column",
        "holds nulls. Ranges are half-open. A reference is a row number, counted from 0.",
        "",
        "A **Trace** is one rank: the tables nodes, deps, groups, attrs and issues, and its",
        "provenance. Its tables tensors and operands are read from the attributes of type operand",
        "on first access; `trace.device_frame()` returns device_events.",
        "A **Job** is several ranks: their traces; matches, the operations of different ranks",
        "that are the same communication; and clocks, the clock skew between ranks. A",
        "**schedule** states when each operation ran; measured and replayed runs have the same",
        "table.",
        "",
        "`nadi info --check` and `nadi.trace.validate_trace` check the rules: each has a code.",
    ]
    for table in TABLES:
        lines += ["", f"## {table.name}", "", f"A row is {table.row}.", ""]
        lines += ["| column | type | unit | missing | meaning |", "|---|---|---|---|---|"]
        for column in table.columns:
            meaning = column.meaning
            if column.references:
                meaning += f" ({column.references})"
            missing = "" if column.missing is None else f"`{column.missing!r}`"
            lines.append(
                f"| {column.name} | {_type_name(column)} | {column.unit} | {missing} | {meaning} |"
            )
        if table.rules:
            lines += ["", "| rule | requirement |", "|---|---|"]
            lines += [f"| `{code}` | {rule} |" for code, rule in table.rules.items()]
    return "\n".join(lines) + "\n"


def _type_name(column: Column) -> str:
    return _name_of_type(column.instance)


def _name_of_type(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.Enum):
        return "one of " + ", ".join(dtype.categories.to_list())
    if isinstance(dtype, pl.List):
        inner = dtype.inner
        return f"list of {_name_of_type(inner() if isinstance(inner, type) else inner)}"
    return {pl.String: "text", pl.Boolean: "bool"}.get(type(dtype), str(dtype).lower())
