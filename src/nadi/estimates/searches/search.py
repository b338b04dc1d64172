"""Search the executions of a model on a machine: in processes, part by part, to be continued."""

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from nadi.errors import InputError, Parameter, UsageError
from nadi.estimates.execution import Execution
from nadi.estimates.feasibility import REASONS
from nadi.estimates.search_layouts import SearchSpace
from nadi.estimates.search_results import (
    RankedExecution,
    SearchResult,
    SearchTask,
    merged,
    search_part,
)
from nadi.files.csv_tables import parquet_bytes, read_parquet
from nadi.files.files import (
    TEMPORARY,
    check_writable,
    read_file,
    read_settings,
    write_pieces,
)
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
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError):
        raise InputError(str(path), "not a part of a search", "delete it") from None


def _result(frame: pl.DataFrame, task: SearchTask, begin: int) -> SearchResult:
    counts = np.bincount(frame["lacks"].to_physical().to_numpy(), minlength=len(REASONS))
    fields = list(Execution.__struct_fields__)
    rows = (
        frame.with_row_index("number")
        .filter(pl.col("lacks").to_physical() == 0)
        .sort("rate", "number", descending=[True, False])
        .head(task.keep)
    )
    best = tuple(
        RankedExecution(
            row["rate"], begin + row["number"], row["seconds"], row["tier1_bytes"],
            row["tier2_bytes"], row["tier2_bandwidth"],
            Execution(**{field: row[field] for field in fields}),
        )
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
