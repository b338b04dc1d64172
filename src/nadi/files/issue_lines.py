"""Logs of issued and completed nodes, as Chakra's timeline visualizer reads them.

A line is ``issue,npu_id=0,curr_cycle=5,node_id=1,node_name=COMP_NODE_matmul`` or ``callback`` with
the same. Only the order of fields counts, and not their names.
"""

import polars as pl

from nadi.errors import FormatError
from nadi.trace.issues import IssueLog

# the beginning of a node's name, and the lane on which it is drawn
LANES = {
    "MEM": "memory",
    "COMP": "compute",
    "COMM_SEND": "send",
    "COMM_RECV": "receive",
    "COMM_COLL": "collectives",
}
_FIELDS = ("word", "npu", "cycle", "id", "name")
_SHOWN = 80


def looks_like_issue_lines(head: bytes) -> bool:
    """Return whether the first bytes of a file are such a log's."""
    first = head.lstrip().split(b"\n", 1)[0]
    return first.split(b",", 1)[0] in (b"issue", b"callback") and first.count(b",") >= 4


def decode_issue_lines(path: str, content: bytes, log: IssueLog) -> pl.DataFrame:
    """Read a log; each callback ends the earliest open issue of its node on its NPU.

    - Returns: A row per node that was issued and completed, by npu and begin: npu, id, name, lane,
      begin, end (int64, cycles). O(lines log lines).
    - Raises FormatError if a line is none of these, or a node ends before it begins.
    """
    lines = pl.DataFrame({
        "line": pl.Series(content.decode(errors="replace").splitlines(), dtype=pl.String)
    }).with_row_index("number", offset=1)  # fmt: skip
    lines = lines.filter(pl.col("line").str.strip_chars() != "")
    parts = lines.select(
        "number", "line",
        pl.col("line").str.splitn(",", 5).struct.rename_fields(_FIELDS).alias("parts"),
    ).unnest("parts")  # fmt: skip
    values = [
        pl.col(name).str.splitn("=", 2).struct.field("field_1").alias(name) for name in _FIELDS[1:]
    ]
    found = parts.with_columns(values).with_columns(
        pl.col("word").str.strip_chars(),
        pl.col("npu", "cycle", "id").str.strip_chars().cast(pl.Int64, strict=False),
    )
    good = pl.col("word").is_in(["issue", "callback"]) & (pl.col("cycle") >= 0)
    broken = found.filter(
        ~(good & pl.all_horizontal(pl.col(*_FIELDS).is_not_null())).fill_null(False)
    )
    if broken.height:
        number, line = broken.row(0)[:2]
        raise FormatError(
            f"{path}, line {number}", f"{line[:_SHOWN]!r} is no issue and no callback of a node",
            "lines are as issue,npu_id=0,curr_cycle=5,node_id=1,node_name=COMP_NODE_x",
        )  # fmt: skip
    return _paired(path, found, log)


def _paired(path: str, found: pl.DataFrame, log: IssueLog) -> pl.DataFrame:
    turn = pl.int_range(pl.len()).over("npu", "id", "word")
    found = found.with_columns(turn=turn)
    begun, ended = (found.filter(word=word) for word in ("issue", "callback"))
    pairs = begun.join(
        ended.select("npu", "id", "turn", "number", end="cycle"),
        on=("npu", "id", "turn"), how="full", coalesce=True,
    )  # fmt: skip
    never_ended = pairs.filter(pl.col("end").is_null()).height
    never_begun = pairs.filter(pl.col("cycle").is_null()).height
    log.add("lines.not-ended", "warning", never_ended, "nodes are issued and never complete")
    log.add("lines.not-begun", "warning", never_begun, "nodes complete and are never issued")
    pairs = pairs.drop_nulls(("cycle", "end"))
    backwards = pairs.filter(pl.col("end") < pl.col("cycle")).sort("number_right")
    if backwards.height:
        row = backwards.row(0, named=True)
        raise FormatError(
            f"{path}, line {row['number_right']}",
            f"node {row['id']} of NPU {row['npu']} completes at cycle {row['end']}, before it is "
            f"issued at {row['cycle']}", "check the order of the lines",
        )  # fmt: skip
    lane = pl.lit("other")
    for prefix, title in LANES.items():
        lane = pl.when(pl.col("name").str.starts_with(prefix)).then(pl.lit(title)).otherwise(lane)
    return pairs.select("npu", "id", "name", lane.alias("lane"), "end", begin="cycle").sort(
        "npu", "begin", "end", descending=[False, False, True], maintain_order=True
    )
