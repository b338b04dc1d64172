"""Readers of other tools' files: size, seconds, records/s and peak memory of each.

Usage: python benchmarks/read_foreign.py [READER...]

Readers: nsight, rocprof, xplane, snapshot, pftrace, flight-recorder, inspector. Each reads a file
of ../shared/data/field, or one that PyTorch wrote, whose records are repeated, one time after
another; for recorders of NCCL, of which there is no file, dumps of several ranks. Beside each time
is its bound: that of a library that only decodes the same bytes, and makes no trace of them. Of
protobuf, which Nadi decodes itself, it is the time that a Kineto trace of the same events takes.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
from _measure import SHARED, peak_memory_mb

import nadi
from nadi.files import sniff
from nadi.files.files import read_file
from nadi.files.flight_recorder import read_dumps
from nadi.files.kineto import kineto_trace
from nadi.files.nsight import COLUMNS
from nadi.systems import read_inspector

_FIELD = SHARED / "field"
_RECORDED = Path(__file__).parents[1] / "tests/formats/recorded/recorded.pftrace"
_WANTED = 300_000
_SECOND = 10**9
_RANKS = 64  # of the recorders' dumps


class _Plain(pickle.Unpickler):
    """Python's own reader of pickles, without objects."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name}")


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (content[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if content[at - 1] < 128:
            return value, at


def _put(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def _messages(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Give the number and content of each field of a message, whose numbers are left out."""
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        size, at = _varint(content, at)
        if key & 7 == 2:
            yield key >> 3, content[at : at + size]
            at += size


def _message(number: int, content: bytes) -> bytes:
    return _put(number << 3 | 2) + _put(len(content)) + content


def write_pftrace(path: Path) -> int:
    """Repeat what has a time in a ``.pftrace``: a packet whose first field is its time."""
    packets = [one for _, one in _messages(gzip.decompress(_RECORDED.read_bytes()))]
    first = next(k for k, one in enumerate(packets) if k and one[:1] == b"\x40")
    timed = [_varint(one, 1) for one in packets[first:]]
    with path.open("wb") as file:
        file.writelines(_message(1, one) for one in packets[:first])
        copies = -(-_WANTED // len(timed))
        for copy in range(copies):
            file.writelines(
                _message(1, b"\x40" + _put(time + copy * _SECOND) + one[at:])
                for one, (time, at) in zip(packets[first:], timed, strict=True)
            )
    return copies * len(timed)


def write_xplane(path: Path) -> int:
    """Repeat the lines of an XPlane file: a line's last timestamp is the one that counts."""
    (given,) = (_FIELD / "devices").glob("*.xplane.pb")
    planes = [list(_messages(one)) for _, one in _messages(given.read_bytes())]
    events = sum(number == 4 for plane in planes for kind, line in plane if kind == 3
                 for number, _ in _messages(line))  # fmt: skip
    copies = -(-_WANTED // events)
    with path.open("wb") as file:
        for plane in planes:
            file.write(_message(1, b"".join(
                _message(kind, one + (b"\x18" + _put((copy + 1) * _SECOND) if kind == 3 else b""))
                for kind, one in plane for copy in range(copies if kind == 3 else 1))))  # fmt: skip
    return copies * events


def write_nsight(path: Path) -> int:
    """Double the rows of an export; processes, threads, devices and texts stay."""
    (given,) = (_FIELD / "nsys").glob("*before.sqlite")
    path.write_bytes(given.read_bytes())
    shifted = {"start": _SECOND, "end": _SECOND, "correlationId": 10**6}
    with closing(sqlite3.connect(path)) as database:
        count, copies = _count(database), 1
        while count * copies < _WANTED:
            for table in _tables(database):
                names = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
                values = ", ".join(f"{one} + {shifted[one] * copies}" if one in shifted else one
                                   for one in names)  # fmt: skip
                database.execute(f"INSERT INTO {table} SELECT {values} FROM {table}")
            copies *= 2
        database.commit()
        return _count(database)


def _tables(database: sqlite3.Connection) -> list[str]:
    kinds = ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "SYNCHRONIZATION")
    wanted = {"NVTX_EVENTS", *(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in kinds)}
    return [name for (name,) in database.execute("SELECT name FROM sqlite_master")
            if name in wanted]  # fmt: skip


def _count(database: sqlite3.Connection) -> int:
    return sum(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
               for table in _tables(database))  # fmt: skip


def write_rocprof(path: Path) -> int:
    """Repeat the dispatches of a file of rocprofv3."""
    (given,) = (_FIELD / "devices").glob("rocprof*")
    made = json.loads(gzip.decompress(given.read_bytes()))
    records = made["rocprofiler-sdk-tool"][0]["buffer_records"]
    once = records["kernel_dispatch"]
    copies = -(-_WANTED // len(once))
    records["kernel_dispatch"] = [
        {**one, "start_timestamp": one["start_timestamp"] + copy * 20 * _SECOND,
         "end_timestamp": one["end_timestamp"] + copy * 20 * _SECOND}
        for copy in range(copies) for one in once
    ]  # fmt: skip
    path.write_bytes(msgspec.json.encode(made))
    return copies * len(once)


def write_snapshot(path: Path) -> int:
    """Repeat the history of a memory snapshot; each copy has lists of frames of its own."""
    (given,) = (_FIELD / "memory").glob("*.pickle")
    made = _Plain(io.BytesIO(given.read_bytes())).load()
    count = 0
    for device, entries in enumerate(made["device_traces"]):
        copies = -(-_WANTED // max(len(entries), 1)) if entries else 0
        repeated = made["device_traces"][device] = []
        for copy in range(copies):
            # as PyTorch writes them: an allocation and its release share a list
            lists = {id(one.get("frames")): [*one.get("frames", ())] for one in entries}
            repeated += [
                {**one, "time_us": one["time_us"] + copy * 10**7,
                 "frames": lists[id(one.get("frames"))]}
                for one in entries
            ]  # fmt: skip
        count += copies * len(entries)
    path.write_bytes(pickle.dumps(made, 4))
    return count


def write_recorder(path: Path) -> int:
    """Write dumps of a flight recorder: all-reduces and all-gathers of two groups on each rank."""
    path.mkdir()
    each, ranks = _WANTED // _RANKS, str(list(range(_RANKS)))
    frames = [{"name": name, "filename": "/job/train.py", "line": 10 * k}
              for k, name in enumerate(("backward", "step", "train", "main"))]  # fmt: skip
    for rank in range(_RANKS):
        entries = [
            {"record_id": k, "pg_id": k % 2, "process_group": (str(k % 2), "dp"),
             "collective_seq_id": k // 2 + 1, "p2p_seq_id": 0, "op_id": k // 2 + 1,
             "profiling_name": "nccl:all_reduce", "time_created_ns": 10**18 + 10**6 * k + rank,
             "time_discovered_started_ns": None, "time_discovered_completed_ns": None,
             "input_sizes": [[4096, 1024 + k % 7]], "input_dtypes": ["Float"],
             "output_sizes": [[4096, 1024 + k % 7]], "output_dtypes": ["Float"],
             "state": "completed" if k + 2 < each or rank == 3 else "scheduled", "retired": True,
             "timeout_ms": 600_000, "is_p2p": False, "frames": frames}
            for k in range(each)
        ]  # fmt: skip
        status = {"last_enqueued_collective": each // 2, "last_started_collective": each // 2,
                  "last_completed_collective": each // 2 - 1}  # fmt: skip
        dump = {"version": "2.10", "pg_config": {str(k): {"ranks": ranks} for k in range(2)},
                "pg_status": {"0": status, "1": status}, "entries": entries}  # fmt: skip
        (path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, 2))
    return each * _RANKS


def write_inspector(path: Path) -> int:
    """Write a log of the Inspector: a collective on each line."""
    header = {"id": "0x7f3a9c", "rank": 0, "n_ranks": 8, "nnodes": 1}
    metadata = {"inspector_output_format_version": "v4.0", "dump_timestamp_us": 10**15,
                "hostname": "node0", "pid": 4711}  # fmt: skip
    with path.open("wb") as file:
        for k in range(_WANTED):
            said = {"coll": "AllReduce", "coll_sn": k, "coll_msg_size_bytes": 1 << 16 + k % 8,
                    "coll_exec_time_us": 100 + k % 97, "coll_timing_source": "kernel_gpu",
                    "coll_algbw_gbs": 1.5, "coll_busbw_gbs": 2.6}  # fmt: skip
            file.write(msgspec.json.encode(
                {"header": header, "metadata": metadata, "coll_perf": said}) + b"\n")  # fmt: skip
    return _WANTED


def _rows_of(path: Path) -> None:
    """Fetch the columns that Nadi reads of the rows."""
    with closing(sqlite3.connect(path)) as database:
        for table, wanted in COLUMNS.items():
            there = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            names = [name for name in wanted if name in there]
            if names:
                database.execute(f"SELECT {', '.join(names)} FROM {table}").fetchall()


def _as_kineto(path: Path) -> float:
    """Give the seconds that the events of a file take once they are a Kineto trace."""
    found = sniff(path)
    assert found is not None
    events = found.events_of(read_file(path))
    return min(_seconds(lambda: kineto_trace.decode(events))[1] for _ in range(3))


def _unpickled(path: Path) -> None:
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        _Plain(io.BytesIO(file.read_bytes())).load()


def _lines(path: Path) -> None:
    for line in path.read_bytes().splitlines():
        msgspec.json.decode(line)


_Work = Callable[[Path], object]


def _alone(decode: _Work) -> Callable[[Path], float]:
    return lambda path: min(_seconds(lambda: decode(path))[1] for _ in range(3))


_READERS: dict[str, tuple[str, Callable[[Path], int], _Work, str, Callable[[Path], float]]] = {
    "nsight": ("a.sqlite", write_nsight, nadi.read, "sqlite3", _alone(_rows_of)),
    "rocprof": ("a_results.json", write_rocprof, nadi.read, "msgspec",
                _alone(lambda path: msgspec.json.decode(path.read_bytes()))),
    "xplane": ("a.xplane.pb", write_xplane, nadi.read, "as a Kineto trace", _as_kineto),
    "snapshot": ("a.pickle", write_snapshot, nadi.read, "pickle", _alone(_unpickled)),
    "pftrace": ("a.pftrace", write_pftrace, nadi.read, "as a Kineto trace", _as_kineto),
    "flight-recorder": ("dumps", write_recorder, lambda path: read_dumps([path]), "pickle",
                        _alone(_unpickled)),
    "inspector": ("a.log", write_inspector, lambda path: read_inspector([path]),
                  "msgspec", _alone(_lines)),
}  # fmt: skip


def _measure(reader: str, path: Path, count: int) -> None:
    """Read a file in this process, and print how that went."""
    _, _, read, library, bound = _READERS[reader]
    first = _seconds(lambda: read(path))
    peak = peak_memory_mb()
    wall, busy = map(min, zip(*(_seconds(lambda: read(path)) for _ in range(3)), strict=True))
    files = path.iterdir() if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files) / 1e6
    alone = bound(path)
    print(f"{reader}: {size:.0f} MB, {count:,} records: first {first[0]:.2f} s, best {wall:.2f} s ="
          f" {count / wall / 1e6:.2f} M records/s ({busy:.2f} CPU s ="
          f" {count / busy / 1e6:.2f} M/s), {peak:,.0f} MB at peak; bound: {library} {alone:.2f}"
          f" CPU s = {count / alone / 1e6:.2f} M/s, {busy / alone:.1f} times that",
          flush=True)  # fmt: skip


def _seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Give the seconds that some work takes, by the clock and of the processors."""
    begin, busy = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - begin, time.process_time() - busy


def main() -> None:
    for reader in sys.argv[1:] or _READERS:
        name, write, *_ = _READERS[reader]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            count = write(path)
            # a process of its own, so that its peak of memory is that of this reader
            with ProcessPoolExecutor(1, get_context("spawn")) as executor:
                executor.submit(_measure, reader, path, count).result()


if __name__ == "__main__":
    main()
