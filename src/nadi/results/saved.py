"""Results that commands wrote, read again: ``summary.json``, tables and logs of schedules."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from nadi.errors import FormatError
from nadi.files.csv_tables import as_written, read_table
from nadi.files.files import read_file, read_head
from nadi.files.issue_lines import decode_issue_lines, looks_like_issue_lines
from nadi.files.settings_text import decode_json
from nadi.files.trace_files import sniff
from nadi.trace.arrays import Ints
from nadi.trace.issues import IssueLog

RESULT_FILES = ("summary.json", "critical_path.csv", "timeline.json.gz")
"""Names of files that commands write beside each other."""
RESULT_KINDS: dict[str, tuple[str, frozenset[str]]] = {
    "run": ("nadi run", frozenset({"critical_path_by_kind", "verdict"})),
    "what_if": ("nadi what-if", frozenset({"changes", "ideals"})),
    "simulation": ("nadi simulate", frozenset({"makespan_ns", "per_rank"})),
    "estimate": ("nadi estimate", frozenset({"seconds", "tier1_bytes", "times"})),
    "search": ("nadi search", frozenset({"executions", "feasible", "best"})),
    "waits": ("nadi waits", frozenset({"bottlenecks", "knots"})),
    "fold": ("nadi fold", frozenset({"classes", "kept_nodes"})),
    "similarity": ("nadi similarity", frozenset({"measures", "reference_system"})),
    "placement": ("nadi memory place", frozenset({"each_role_alone", "with_tiers_ns"})),
    "second_tier": ("nadi memory plan", frozenset({"pays_from_gbps", "without"})),
    "serving": ("nadi serve", frozenset({"output_tokens_per_second", "latencies", "bound_by"})),
    "server_sweep": ("nadi serve --sweep", frozenset({"fields", "points"})),
    "server_search": ("nadi serve --search", frozenset({"without_tiers", "has_tiers"})),
}
"""Of each kind of results, the command that writes it, and keys that no other has."""
_OF_WINDOWS = ("run", "what_if", "waits")
_MAX_SIZE = 1 << 30
_MOST = 1 << 63


class SavedSummary(NamedTuple):
    """Results that were read again."""

    kind: str  # one of ``RESULT_KINDS``
    data: Any  # its content: an object, of ``second_tier`` a list of objects


def read_summary(path: Path | str) -> SavedSummary | None:
    """Read results from a file, or from a folder with a ``summary.json``.

    - Returns: None if the file is something else, such as a trace.
    - Raises FormatError if a ``summary.json`` in a folder is no JSON, or not of Nadi.
    """
    place = Path(path)
    is_folder = place.is_dir()
    if is_folder:
        place = place / RESULT_FILES[0]
    if not place.is_file() or place.suffix != ".json" or place.stat().st_size > _MAX_SIZE:
        return None
    if read_head(place, 64).lstrip()[:1] not in (b"{", b"[") or sniff(place) is not None:
        return None
    remedy = "write it again with nadi run -o"
    try:
        found: Any = decode_json(bytes(read_file(place).content), object, str(place), remedy)
        if not _is_plain(found):
            raise FormatError(str(place), "a number has over 63 bits", remedy)
    except FormatError:
        if not is_folder:
            return None  # readers of traces say what is wrong
        raise
    first = found[0] if isinstance(found, list) and found else found
    if isinstance(first, dict):
        for kind, (_, keys) in RESULT_KINDS.items():
            if keys <= first.keys() and isinstance(found, list) == (kind == "second_tier"):
                return SavedSummary(kind, _with_present_names(kind, found))
    if is_folder:
        raise FormatError(
            str(place), "is not a summary of Nadi", "write it again with nadi run -o FOLDER"
        )
    return None


def _with_present_names(kind: str, found: Any) -> Any:
    """Name times as they are named now: of whole jobs before version 0.4 ``step_ns``, too."""
    if kind in _OF_WINDOWS:
        return _with_windows(found)
    if kind == "similarity" and "step_ns" in found and isinstance(found["measures"], list):
        rows = [
            one | {"measure": str(one["measure"]).replace("step time, ", "makespan, ")}
            if isinstance(one, dict) and "measure" in one else one
            for one in found["measures"]
        ]  # fmt: skip
        return {"makespan_ns": found["step_ns"], **found, "measures": rows}
    return found


def _with_windows(value: Any) -> Any:
    """Name the time of a window as such: before version 0.4 it was called ``step_ns``."""
    if isinstance(value, list):
        return [_with_windows(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {key: _with_windows(one) for key, one in value.items()}
    is_former = "step_ns" in found and "window_ns" not in found and "steps" not in found
    return {**found, "window_ns": found["step_ns"]} if is_former else found


def _is_plain(value: Any) -> bool:
    """Return whether all whole numbers within are those that Nadi writes: of 64 bits."""
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return not isinstance(value, int) or abs(value) < _MOST


_COLUMNS = ("rank", "id", "name", "start", "end", "resource")
_HEAD = 4096


def read_schedule(path: Path, cycles_per_second: float, log: IssueLog) -> pl.DataFrame:
    """Read when each operation of a job ran.

    - ``path``: A log of issued and completed nodes, or a table that ``nadi simulate -o FILE.csv``
      wrote; compressed ones too.
    - ``cycles_per_second``: What times in a log count.
    - ``log``: Collects what is left out.
    - Returns: rank, id, name, start, end (int64 ns, rounded), resource.
    - Raises InputError if the file cannot be read.
    - Raises FormatError if it is neither, or has a line that is wrong.
    """
    content = bytes(read_file(path).content)
    if looks_like_issue_lines(content[:_HEAD]):
        found = decode_issue_lines(str(path), content, log)
        ns = [_ns(found[side].to_numpy(), cycles_per_second) for side in ("begin", "end")]
        found = found.select(
            "id", "name", rank="npu", resource="lane", start=pl.Series(ns[0]),
            end=pl.Series(ns[1]),
        ).select(_COLUMNS)  # fmt: skip
        return _of_ranks(path, found)
    head = content[:_HEAD].split(b"\n", 1)[0].decode(errors="replace").strip().split(",")
    if set(_COLUMNS) <= set(head):
        return _of_ranks(path, _table(path, content))
    raise FormatError(
        str(path), "is no schedule",
        "give a log with lines such as issue,npu_id=0,curr_cycle=5,node_id=1,node_name=x, or a "
        ".csv of nadi simulate; nadi convert draws traces",
    )  # fmt: skip


def _of_ranks(path: Path, found: pl.DataFrame) -> pl.DataFrame:
    """Return a schedule; FormatError if a rank is none that a trace may have."""
    wrong = found.filter(~pl.col("rank").is_between(-1, (1 << 31) - 1))["rank"]
    if wrong.len():
        raise FormatError(
            str(path), f"has the rank {wrong[0]}", "a rank is a number from -1 to 2147483647"
        )
    return found


def _ns(cycles: Ints, per_second: float) -> Ints:
    times: Ints = np.rint(cycles * (1e9 / per_second)).astype(np.int64)
    return times


def _table(path: Path, content: bytes) -> pl.DataFrame:
    types = dict.fromkeys(_COLUMNS, pl.Int64) | dict.fromkeys(("name", "resource"), pl.String)
    found = read_table(str(path), content, types, "write it again")
    wrong = found.filter((pl.col("end") < pl.col("start")) | pl.col("start").is_null())
    if wrong.height or found.null_count().select("rank", "end").sum_horizontal().item():
        raise FormatError(str(path), "has a row without a time, or that ends before it begins",
                          "write it again with nadi simulate -o FILE.csv")  # fmt: skip
    texts = as_written(pl.col("name", "resource")).fill_null("")
    return found.with_columns(texts).select(_COLUMNS)
