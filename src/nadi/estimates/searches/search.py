"""Search the executions of a model on a machine: in processes, part by part, to be continued.

The fastest execution at each point of one or two axes.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl

from nadi.errors import InputError, Parameter, UsageError
from nadi.estimates.calculon.rules import DEFAULT, EstimateRules
from nadi.estimates.execution import Execution
from nadi.estimates.feasibility import REASONS
from nadi.estimates.search_layouts import SearchSpace, search_space
from nadi.estimates.search_results import (
    RankedExecution,
    SearchResult,
    SearchTask,
    merged,
    search_part,
)
from nadi.estimates.stated_files import Described
from nadi.estimates.sweep_axes import SweepAxis, num_points, parse_axes
from nadi.estimates.sweeps import axis_columns, described_at
from nadi.files.csv_tables import parquet_bytes, read_parquet
from nadi.files.files import TEMPORARY, check_writable, read_file, read_settings, write_pieces
from nadi.forks import refuse_in_fork
from nadi.progress import tell
from nadi.results.terminal.workers import worker_processes

_AT_ONCE = 1 << 18  # executions of a part: a second or so
_WORTH_PROCESSES = 1 << 20
_STATED = "search.json"


def search(
    space: SearchSpace, *, top: int = 20, output: Path | str | None = None,
    executor: Executor | None = None,
) -> SearchResult:  # fmt: skip
    """Find the executions of a space that run fastest.

    Parameters
    ----------
    space
        As :func:`nadi.estimates.search_space` gives it.
    top
        How many of the fastest to give.
    output
        A folder for all executions and what was found of each, in Parquet: a file per part. Parts
        that it has from a search that was stopped are not worked out again.
    executor
        Where parts are worked out; by default processes, or this one if there are few.

    Raises
    ------
    UsageError
        If the folder has something else than this search.
    InputError
        If a file of the folder cannot be read or written.
    """
    refuse_in_fork()
    if top < 1:
        raise UsageError(Parameter("top", top), "must be at least 1", "give a larger number")
    task = SearchTask(space, space.rules, top)
    folder = None if output is None else _claimed(Path(output), task)
    ranges = [
        (begin, min(begin + _AT_ONCE, space.size)) for begin in range(0, space.size, _AT_ONCE)
    ]
    found = SearchResult(0, (), np.zeros(len(REASONS), dtype=np.int64))
    tell(0, space.size)
    for part in _results(task, ranges, folder, executor):
        found = merged([found, part], top)
        tell(found.num_executions, space.size)
    return found


def _results(
    task: SearchTask, ranges: list[tuple[int, int]], folder: Path | None,
    executor: Executor | None,
) -> Iterator[SearchResult]:  # fmt: skip
    """Give the result of each part, as they come."""
    few = ranges[-1][1] < _WORTH_PROCESSES and executor is None
    if few or (os.cpu_count() == 1 and executor is None):
        for begin, end in ranges:
            yield _work(task, begin, end, folder)
        return
    with _processes(executor, len(ranges)) as pool:
        waiting = iter(ranges)
        running: set[Future[SearchResult]] = set()
        try:
            while True:
                # no more than are soon begun, so that a search that is stopped stops
                for begin, end in waiting:
                    running.add(pool.submit(_work, task, begin, end, folder))
                    if len(running) >= 2 * (os.cpu_count() or 1) + 2:
                        break
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            for future in running:
                future.cancel()


@contextmanager
def _processes(executor: Executor | None, parts: int) -> Iterator[Executor]:
    if executor is not None:
        yield executor
        return
    workers = min(os.cpu_count() or 1, parts)
    with worker_processes(workers) as pool:
        yield pool


def _work(task: SearchTask, begin: int, end: int, folder: Path | None) -> SearchResult:
    """Work out a part, or read it if it is there."""
    if folder is None:
        return search_part(task, begin, end)[0]
    path = folder / f"part-{begin // _AT_ONCE:06}.parquet"
    if path.exists():
        return _read(path, task, begin)
    found, frames = search_part(task, begin, end, with_rows=True)
    write_pieces(path, [parquet_bytes(pl.concat(frames))])
    return found


def _read(path: Path, task: SearchTask, begin: int) -> SearchResult:
    """Read the result of a part that was worked out before."""
    frame = read_parquet(str(path), read_file(path).content.tobytes(), "delete it")
    try:
        return _result(frame, task, begin)
    except (pl.exceptions.PolarsError, msgspec.MsgspecError, TypeError, ValueError, KeyError,
            OverflowError):  # fmt: skip
        raise InputError(str(path), "not a part of a search", "delete it") from None


def _result(frame: pl.DataFrame, task: SearchTask, begin: int) -> SearchResult:
    lacks = frame["lacks"].to_physical()
    if lacks.null_count() or (lacks.len() and lacks.max() >= len(REASONS)):  # type: ignore[operator]
        raise ValueError("lacks")
    counts = np.bincount(lacks.to_numpy(), minlength=len(REASONS))
    fields = list(Execution.__struct_fields__)
    rows = (
        frame.with_row_index("number")
        .filter(pl.col("lacks").to_physical() == 0)
        .sort("rate", "number", descending=[True, False])
        .head(task.keep)
    )
    best = tuple(
        msgspec.convert((
            row["rate"], begin + row["number"], row["seconds"], row["tier1_bytes"],
            row["tier2_bytes"], row["tier2_bandwidth"], {field: row[field] for field in fields},
        ), RankedExecution)
        for row in rows.iter_rows(named=True)
    )  # fmt: skip
    return SearchResult(frame.height, best, counts.astype(np.int64))


def _claimed(folder: Path, task: SearchTask) -> Path:
    """Make the folder of a search, or check that it has the same one."""
    stated = _stated(task)
    path = folder / _STATED
    check_writable(path)
    if path.exists():
        if read_settings(path) != stated:
            raise UsageError(
                str(folder),
                "has the parts of another search",
                "name another folder, or delete this one",
            )
    elif any(not one.match(TEMPORARY.format("*")) for one in folder.glob("*")):
        raise UsageError(str(folder), "is not empty", "name another folder")
    else:
        write_pieces(path, [stated])
    return folder


def _stated(task: SearchTask) -> bytes:
    """Describe a search so that equal ones are described equally."""
    digest = hashlib.sha256()
    for part in task.space.parts:
        for columns in (part.layouts, part.choices):
            for name, column in columns.items():
                digest.update(name.encode() + column.tobytes())
    stated = {
        "model": task.space.model, "machine": task.space.machine, "rules": task.rules._asdict(),
        "ranks": task.space.num_procs, "executions": task.space.size,
        "part": _AT_ONCE, "space": digest.hexdigest(),
    }  # fmt: skip
    text = msgspec.json.encode(stated, enc_hook=_digest)
    return msgspec.json.format(text, indent=2) + b"\n"


def _digest(table: pl.DataFrame) -> str:
    """Describe recorded prices, of which there are many."""
    return hashlib.sha256(table.write_csv().encode()).hexdigest()


_NUMBERS = ("num_procs", "batch_size")  # which a search has as numbers of its own


class SweptSearch(NamedTuple):
    """The results of searches at points.

    Attributes
    ----------
    axes
        The fields that vary; points are all combinations of their values, the last axis fastest.
    results
        Of each point, with the fastest execution that is possible.
    """

    axes: tuple[SweepAxis, ...]
    results: tuple[SearchResult, ...]

    def frame(self) -> pl.DataFrame:
        """Give a row per point: the axes, the counts, and the fastest execution, or nulls."""
        rows = [
            {"executions": one.num_executions, "feasible": one.num_feasible}
            | (_row(one) if one.best else {})
            for one in self.results
        ]
        schema: dict[str, Any] = {"executions": pl.Int64, "feasible": pl.Int64}
        schema |= dict.fromkeys(_FIGURES, pl.Float64)
        names = [
            one for one in Execution.__struct_fields__ if one not in dict(axis_columns(self.axes))
        ]
        told: list[str | tuple[str, Any]] = [*schema.items(), *names]
        frame = pl.DataFrame(rows, schema=told, infer_schema_length=None)
        return pl.DataFrame(axis_columns(self.axes)).hstack(frame)


_FIGURES = ("rate", "seconds", "tier1_bytes", "tier2_bytes", "tier2_bandwidth")


def _row(result: SearchResult) -> dict[str, Any]:
    best = result.best[0]
    figures = {name: getattr(best, name) for name in _FIGURES}
    fields: dict[str, Any] = msgspec.to_builtins(best.execution)
    return figures | fields


def sweep_search(
    described: Described, axes: Sequence[str], given: Mapping[str, Iterable[Any]] | None = None, *,
    round_batch: bool = False, rules: EstimateRules = DEFAULT, executor: Executor | None = None,
) -> SweptSearch:  # fmt: skip
    """Search at all points of axes.

    A field of the execution is not searched, but has the value of the point; ``num_procs`` and
    ``batch_size`` are the numbers of ranks and sequences.

    Parameters
    ----------
    described
        The model and the machine; of its execution, the numbers of ranks and sequences
        (:func:`describe_search`).
    axes
        One or two, such as ``memory.tier2.bandwidth=32,64,128``:
        :func:`nadi.estimates.parse_axes`.
    given, round_batch, rules
        As for :func:`nadi.estimates.search_space`.
    executor
        As for :func:`nadi.estimates.search`.

    Raises
    ------
    UsageError
        If an axis or a space is refused.
    """
    given = dict(given or {})
    read = parse_axes(axes, described, rules)
    for axis in read:
        if axis.owner == "execution" and axis.path[0] in given:
            raise UsageError(
                Parameter("sweep", axis.name), "this field also has values to search",
                "leave out one of them",
            )  # fmt: skip
    results = []
    for point in range(num_points(read)):
        here = described_at(described, read, point)
        swept = {
            str(axis.path[0]): [getattr(here.execution, str(axis.path[0]))]
            for axis in read if axis.owner == "execution" and axis.path[0] not in _NUMBERS
        }  # fmt: skip
        space = search_space(
            here.model, here.machine, here.execution.num_procs, here.execution.batch_size,
            given | swept, round_batch=round_batch, rules=rules,
        )  # fmt: skip
        results.append(search(space, top=1, executor=executor))
    return SweptSearch(read, tuple(results))
