"""Read the SQLite export of Nsight Systems, as events that are those of a Kineto trace.

The database is opened in memory, and only its tables are read: no view, trigger or extension of it
runs. SQLite itself writes the events as JSON, because Python would take longer for each of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import chain

import numpy as np

from nadi.errors import FormatError
from nadi.files.files import RawFile
from nadi.files.kineto.foreign_events import within_limit
from nadi.files.kineto.kineto_trace import MERGED, decode_events
from nadi.trace.arrays import Ints
from nadi.trace.issues import IssueLog
from nadi.trace.trace import Trace

_MAGIC = b"SQLite format 3\0"
_LOG = slice(18, 20)  # says that a log lies beside the database, which is not there in memory
_STEPS_AT_ONCE = 10**6
# SQLite's instructions: exports take about 4 for each byte. Without an index all texts are gone
# through for each kernel, which takes hours in a file of a few megabytes.
_STEPS_PER_BYTE, _LEAST_STEPS = 100, 10**8
_MOST_PROCESSES = 1024
_READS = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION)
_ROWS_AT_ONCE = 1 << 12
_THREAD = 0xFFFFFF
_UNSIGNED = 0xFFFFFFFF
_MARK, _RANGES = 34, (59, 60)  # of NVTX_EVENTS.eventType; pushed, started
_WORDS = ("seq", "op_id", "sizes")
_COPIES = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD",
           9: "HtoH", 10: "PtoP"}  # fmt: skip
_SYNCS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
_NVTX = "NVTX_EVENTS"
_RUNTIME, _KERNEL, _MEMCPY, _MEMSET, _SYNC = (
    f"CUPTI_ACTIVITY_KIND_{kind}"
    for kind in ("RUNTIME", "KERNEL", "MEMCPY", "MEMSET", "SYNCHRONIZATION")
)
_WORK = (_KERNEL, _MEMCPY, _MEMSET, _SYNC)
_PROCESS_OF = {_NVTX: "globalTid", _RUNTIME: "globalTid", **dict.fromkeys(_WORK, "globalPid")}
_HEADERS = ("META_DATA_EXPORT", "TARGET_INFO_SESSION_START_TIME", "StringIds")
_UNREAD = {
    "GPU_METRICS": "samples of the device's counters",
    "OSRT_API": "calls of the operating system",
    "COMPOSITE_EVENTS": "samples of threads",
    "SCHED_EVENTS": "switches of threads",
    "PROFILER_OVERHEAD": "spans of the profiler's own work",
    "CUDA_GPU_MEMORY_USAGE_EVENTS": "allocations on devices",
    "CUBLAS_EVENTS": "calls of cuBLAS",
    "CUDNN_EVENTS": "calls of cuDNN",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "graphs that were recorded whole, without their kernels",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": "records of events",
}
_REMEDY = "they are not read; Nsight shows them"


def looks_like(head: bytes) -> bool:
    """Return whether a file begins as a SQLite database does."""
    return head.startswith(_MAGIC)


def decode(raw: RawFile) -> Trace:
    """Read an export of Nsight Systems.

    - Returns: Nodes with their times in ns since 1970: NVTX ranges of PyTorch's operators and
      others, calls of CUDA, and device work with the call that launched it. Processes are told
      apart by their ids and correlation ids, and are ranks in the order of their ids.
    - Raises FormatError if the database is broken, or is no export of Nsight Systems.
    """
    content, log = to_events(raw)
    return decode_events(raw, content, "Nsight Systems", log)


def to_events(raw: RawFile) -> tuple[bytes, IssueLog]:
    """Return the events as the JSON of a Kineto trace, and what the export does not hold.

    - Raises FormatError as :func:`decode`.
    """
    content = bytearray(raw.content.tobytes())
    _refuse_cut(raw.name, content)
    content[_LOG] = b"\1\1"
    try:
        with closing(sqlite3.connect(":memory:")) as database:
            database.text_factory = bytes
            database.deserialize(bytes(content))
            _restrict(database, max(_LEAST_STEPS, _STEPS_PER_BYTE * raw.content.size))
            return _Export(raw, database).events()
    except (sqlite3.Error, UnicodeDecodeError, OverflowError, MemoryError) as error:
        what = str(error) if str(error).isprintable() else "not what SQLite expects"
        if what == "interrupted":
            what = "that takes far longer than for any export of its size"
        raise FormatError(
            raw.name, f"the database cannot be read: {what}", "export the report again"
        ) from None


def _refuse_cut(name: str, content: bytearray) -> None:
    """Raise FormatError if the file is shorter than its pages: SQLite may not need the last."""
    page = int.from_bytes(content[16:18], "big")
    pages = int.from_bytes(content[28:32], "big")
    size = pages * (65536 if page == 1 else page)
    if len(content) < max(size, 100):
        raise FormatError(
            name, f"the database has {len(content)} bytes, but states {size}",
            "check whether the file was cut off",
        )  # fmt: skip


def _restrict(database: sqlite3.Connection, most_steps: int) -> None:
    """Let the database be read only: no views, no statement that writes, no endless one."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += _STEPS_AT_ONCE
        return int(steps > most_steps)

    def allows(action: int, table: str | None, _column: str | None, _name: str | None,
               inside: str | None) -> int:  # fmt: skip
        pragma = action == sqlite3.SQLITE_PRAGMA and table == "table_info"
        usual = action in _READS and inside is None
        return sqlite3.SQLITE_OK if pragma or usual else sqlite3.SQLITE_DENY

    database.execute("PRAGMA trusted_schema = 0")
    database.execute("PRAGMA cell_size_check = 1")
    database.set_authorizer(allows)
    database.set_progress_handler(count, _STEPS_AT_ONCE)


class _Export:
    """The tables of an export; those without rows are absent, and columns differ by version."""

    def __init__(self, raw: RawFile, database: sqlite3.Connection) -> None:
        self.raw, self.name, self.database = raw, raw.name, database
        # a virtual table is a table, too, which an extension reads
        tables = database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE %'"
        )
        found = {_decoded(row[0]) for row in tables} & {*_HEADERS, *_UNREAD, *_PROCESS_OF}
        self.columns = {
            table: {_decoded(row[1]) for row in database.execute(f"PRAGMA table_info({table})")}
            for table in sorted(found)
        }
        self.processes = self.numbered_processes()

    def events(self) -> tuple[bytes, IssueLog]:
        """Return all events as JSON, and the issues."""
        product = self.one("META_DATA_EXPORT", "value", "WHERE name = 'EXPORT_PRODUCT_NAME'")
        if not isinstance(product, bytes) or b"Nsight Systems" not in product:
            raise FormatError(
                self.name, "a SQLite database, but not an export of Nsight Systems",
                "let nsys export write it, of type sqlite",
            )  # fmt: skip
        parts = within_limit(chain(
            self.ranges(), self.calls(), self.kernels(), self.copies(), self.syncs(),
        ), self.raw)  # fmt: skip
        base = self.one("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
        base = base if isinstance(base, int) and 0 <= base < 2**62 else 0
        head = b'{"schemaVersion":1,"baseTimeNanoseconds":%d,"traceEvents":[' % base
        text = head + b",\n".join(parts) + b"]}"
        if not text.isascii():
            text = text.decode(errors="replace").encode()
        return text, self.issues()

    def one(self, table: str, column: str, where: str = "") -> object:
        """Return a value of a table; None without one."""
        if column not in self.columns.get(table, ()):
            return None
        row = self.database.execute(f"SELECT {column} FROM {table} {where} LIMIT 1").fetchone()
        return row[0] if row else None

    def numbered_processes(self) -> dict[int, int]:
        """Return the number of each process that has work, by its id, in order of id."""
        found: set[int] = set()
        for table, column in _PROCESS_OF.items():
            if table in self.columns:
                pid = _process(self.known(table)[column])
                rows = self.database.execute(
                    f"SELECT DISTINCT {pid} FROM {table} AS e LIMIT {_MOST_PROCESSES + 1}"
                )
                found |= {row[0] for row in rows if row[0] is not None}
        if len(found) > _MOST_PROCESSES:
            raise FormatError(
                self.name, f"more than {_MOST_PROCESSES} processes have work",
                "export the report again",
            )  # fmt: skip
        return {pid: number for number, pid in enumerate(sorted(found))}

    def known(self, table: str) -> _Columns:
        """Return SQL for each column of a table."""
        return _Columns(self.columns.get(table, set()))

    def select(
        self, table: str, name: str, category: str, place: Mapping[str, str],
        args: Mapping[str, str], source: str = "",
    ) -> Iterator[bytes]:  # fmt: skip
        """Return an event for each row of a table that has times; all values are SQL.

        ``place`` says where it ran; in ``category`` and ``args``, ``called`` is the name.
        """
        if table not in self.columns:
            return iter(())
        known = self.known(table)
        start, end = known["start"], known["end"]
        numbers = " ".join(f"WHEN {pid} THEN {number}" for pid, number in self.processes.items())
        pid = _process(known[_PROCESS_OF[table]])
        number = f"CASE {pid} {numbers} END" if self.processes else "0"
        args = {
            "process": pid,
            "correlation": f"({known['correlationId']} & {_UNSIGNED}) | ({number} << 32)",
            **({"rank": number} if len(self.processes) > 1 else {}),
            **args,
        }
        head = {
            "cat": f"json_quote({category})",
            "ts": _micros(start),
            "dur": _micros(f"({end} - {start})"),
            **place,
        }
        sql = (
            f"""SELECT '{{"ph":"X","name":' || json_quote(called) {_members(head)} """
            f"""|| ',"args":{{"of":"{table}"' {_members(args)} || '}}}}' """
            f"FROM (SELECT *, {name} AS called FROM {source or table} AS e) AS e "
            f"WHERE {start} >= 0 AND {end} NOT NULL"
        )
        if table == _NVTX:
            sql += f" AND {known['eventType']} IN {_RANGES} AND NOT {_across_threads(known)}"
        return self.pieces(sql)

    def pieces(self, sql: str) -> Iterator[bytes]:
        """Return the JSON of the rows of a query, many at a time."""
        rows = self.database.execute(sql)
        while some := rows.fetchmany(_ROWS_AT_ONCE):
            yield b",\n".join(row[0] for row in some)

    def on_device(
        self, table: str, name: str, category: str, args: dict[str, str],
        known: _Columns | None = None,
    ) -> Iterator[bytes]:  # fmt: skip
        """Return an event for each row of work on a device."""
        known = known or self.known(table)
        place = {"pid": known["deviceId"], "tid": known["streamId"]}
        told = {
            "device": known["deviceId"], "stream": known["streamId"],
            "context": known["contextId"], "graph id": known["graphId"],
            "graph node id": known["graphNodeId"], **args,
        }  # fmt: skip
        return self.select(table, name, f"'{category}'", place, told)

    def on_thread(
        self, table: str, name: str, category: str, args: dict[str, str], source: str = ""
    ) -> Iterator[bytes]:
        """Return an event for each row of work on a thread."""
        thread = self.known(table)["globalTid"]
        place = {"pid": _process(thread), "tid": f"{thread} & {_THREAD}"}
        return self.select(table, name, category, place, args, source)

    def calls(self) -> Iterator[bytes]:
        """Return the calls of CUDA's runtime and driver, by their names without a version."""
        known = self.known(_RUNTIME)
        name = self.text(known["nameId"])
        bare = f"rtrim({name}, '0123456789')"
        version = " OR ".join(f"{name} GLOB '*_v{'[0-9]' * digits}'" for digits in (4, 5))
        name = f"iif({version}, substr({bare}, 1, length({bare}) - 2), {name})"
        category = f"iif({known['eventClass']} = 1, 'cuda_driver', 'cuda_runtime')"
        return self.on_thread(
            _RUNTIME, name, category, {"returned": f"nullif({known['returnValue']}, 0)"}
        )

    def kernels(self) -> Iterator[bytes]:
        """Return the kernels."""
        known = self.known(_KERNEL)
        sizes = {
            part: " || ',' || ".join(f"coalesce({known[part + axis]}, 0)" for axis in "XYZ")
            for part in ("grid", "block")
        }
        return self.on_device(
            _KERNEL, self.text(known["demangledName"], known["shortName"]), "kernel",
            {**{part: f"'[' || {size} || ']'" for part, size in sizes.items()},
             "registers per thread": known["registersPerThread"],
             "shared memory": f"{known['staticSharedMemory']} + {known['dynamicSharedMemory']}"},
        )  # fmt: skip

    def copies(self) -> Iterator[bytes]:
        """Return the copies and fills of memory."""
        copied, filled = self.known(_MEMCPY), self.known(_MEMSET)
        return chain(
            self.on_device(_MEMCPY, f"'Memcpy ' || {_case(copied['copyKind'], _COPIES)}",
                           "gpu_memcpy", {"bytes": copied["bytes"]}),
            self.on_device(_MEMSET, "'Memset (Device)'", "gpu_memset", {"bytes": filled["bytes"]}),
        )  # fmt: skip

    def syncs(self) -> Iterator[bytes]:
        """Return the waits for events, streams and devices.

        They state device 0 whatever the device is: it is that of other work of the context.
        """
        known = self.known(_SYNC)
        cases = " ".join(
            f"WHEN ({known['globalPid']}, {known['contextId']}) = ({pid}, {context}) THEN {device}"
            for (pid, context), device in self.devices().items()
        )
        if cases:
            known["deviceId"] = f"CASE {cases} ELSE {known['deviceId']} END"
        return self.on_device(
            _SYNC, _case(known["syncType"], _SYNCS), "cuda_sync",
            {"wait_on_cuda_event_id": f"nullif({known['eventId']}, {_UNSIGNED})"}, known,
        )  # fmt: skip

    def devices(self) -> dict[tuple[int, int], int]:
        """Return the device of each context of a process that has kernels, copies or fills."""
        found: dict[tuple[int, int], int] = {}
        for table in _WORK:
            if table in self.columns and table != _SYNC:
                known = self.known(table)
                rows = self.database.execute(
                    f"SELECT {known['globalPid']}, {known['contextId']}, max({known['deviceId']}) "
                    f"FROM {table} AS e GROUP BY 1, 2 LIMIT {_MOST_PROCESSES}"
                )
                found |= {(pid, context): device for pid, context, device in rows
                          if None not in (pid, context, device)}  # fmt: skip
        return found

    def ranges(self) -> Iterator[bytes]:
        """Return NVTX's ranges; those of PyTorch's emit_nvtx are operators.

        It writes `name, seq = 1, op_id = 2, sizes = [[3]], input_op_ids = [...]`, seq where there
        is one.
        """
        known = self.known(_NVTX)
        own = "text" in self.columns.get(_NVTX, ())
        written = self.text(known["textId"])
        written = f"coalesce(CAST(e.text AS TEXT), {written})" if own else written
        places = ", ".join(f"instr(written, ', {word} = ') AS at_{word}" for word in _WORDS)
        source = f"(SELECT *, {places} FROM (SELECT *, {written} AS written FROM {_NVTX} AS e))"
        end = "iif(at_seq BETWEEN 1 AND at_op_id, at_seq, at_op_id)"
        sizes = "substr(written, at_sizes + 10)"
        cut = f"instr({sizes}, ', input_op_ids = ')"
        sizes = f"iif({cut} > 0, substr({sizes}, 1, {cut} - 1), {sizes})"
        args = {
            "domain": known["domainId"],
            "op_id": "iif(at_op_id > 0, CAST(substr(written, at_op_id + 10) AS INTEGER), NULL)",
            "Sequence number": "iif(at_op_id > 0 AND at_seq > 0, "
            "CAST(substr(written, at_seq + 8) AS INTEGER), NULL)",
            "Input Dims": f"iif(at_sizes > at_op_id AND json_valid({sizes}), {sizes}, NULL)",
        }
        return self.on_thread(
            _NVTX, f"iif(at_op_id > 0, substr(written, 1, {end} - 1), written)",
            "iif(at_op_id > 0 AND NOT called GLOB 'nccl:*', 'cpu_op', 'user_annotation')",
            args, source,
        )  # fmt: skip

    def text(self, *ids: str) -> str:
        """Return SQL for the first text of some ids."""
        if not {"id", "value"} <= self.columns.get("StringIds", set()):
            return "'unnamed'"
        found = [f"(SELECT CAST(value AS TEXT) FROM StringIds WHERE id = {one})" for one in ids]
        return f"coalesce({', '.join(found)}, 'unnamed')"

    def issues(self) -> IssueLog:
        """Return what the export has besides the events, and what it has not."""
        log = IssueLog()
        for table, what in _UNREAD.items():
            log.add("nsight.not-read", "info", self.count(table), f"{what} ({table})", _REMEDY)
        known = self.known(_NVTX)
        is_range = f"{known['eventType']} IN {_RANGES}"
        kinds = (
            ("nsight.marks", "info", f"{known['eventType']} = {_MARK}",
             "NVTX marks have no duration"),
            ("nsight.open-ranges", "warning", f"{is_range} AND {known['end']} IS NULL",
             "NVTX ranges have no end in the export"),
            ("nsight.across-threads", "warning",
             f"{is_range} AND {known['end']} NOT NULL AND {_across_threads(known)}",
             "NVTX ranges end on another thread than they begin on"),
        )  # fmt: skip
        for code, severity, where, what in kinds:
            log.add(code, severity, self.count(_NVTX, where), what, "they are left out")
        for table in (_RUNTIME, *_WORK):
            columns = self.known(table)
            untimed = f"{columns['end']} IS NULL OR coalesce({columns['start']}, -1) < 0"
            log.add(
                "nsight.without-time", "warning", self.count(table, untimed),
                f"rows of {table} have no usable time", "they are left out",
            )  # fmt: skip
        return self.not_held(log)

    def not_held(self, log: IssueLog) -> IssueLog:
        """Record what is missing, so that no one takes it for nothing."""
        own = "text" in self.columns.get(_NVTX, ())
        named = f"SELECT 1 FROM {_NVTX} AS e WHERE e.text LIKE '%, op_id = %' LIMIT 1"
        log.add(
            "nsight.no-operators", "info",
            int(not (own and self.database.execute(named).fetchone())),
            "the export names no operators of PyTorch",
            "record under torch.autograd.profiler.emit_nvtx to have them",
        )  # fmt: skip
        log.add(
            "nsight.unlaunched", "info", self.unlaunched(),
            "kernels, copies and fills have no call in the export",
            "they are kept; their calls came before the recording, or were not traced",
        )  # fmt: skip
        log.add(
            "nsight.not-held", "info", 1,
            "the export has no sizes and groups of collectives, no tensors, no stacks of Python",
            "torch.profiler records them",
        )  # fmt: skip
        log.add(
            MERGED, "warning", len(self.processes) if len(self.processes) > 1 else 0,
            "processes have work in the file, as if ranks were merged into it",
            "nadi run reads them as ranks; other commands read one trace",
        )  # fmt: skip
        return log

    def count(self, table: str, where: str = "1") -> int:
        """Count rows of a table; 0 if it is absent."""
        if table not in self.columns:
            return 0
        sql = f"SELECT count(*) FROM {table} AS e WHERE {where}"
        return int(self.database.execute(sql).fetchone()[0])

    def unlaunched(self) -> int:
        """Count the kernels, copies and fills whose call is not in the export."""
        calls = self.identities(_RUNTIME)
        work = [self.identities(table) for table in _WORK if table != _SYNC]
        return sum(int((~np.isin(one, calls)).sum()) for one in work)

    def identities(self, table: str) -> Ints:
        """Return process and correlation id of each row as one number; shape (rows,)."""
        if table not in self.columns:
            return np.zeros(0, dtype=np.int64)
        known = self.known(table)
        pid = _process(known[_PROCESS_OF[table]])
        sql = f"SELECT ({pid} << 32) | ({known['correlationId']} & {_UNSIGNED}) FROM {table} AS e"
        rows = self.database.execute(sql)
        return np.fromiter((number or 0 for (number,) in rows), dtype=np.int64)


class _Columns(dict[str, str]):
    """SQL for each column of a table; NULL for those that a version lacks, and for no integer."""

    def __init__(self, names: set[str]) -> None:
        super().__init__()
        self.names = names

    def __missing__(self, name: str) -> str:
        if name not in self.names:
            return "NULL"
        return f"iif(typeof(e.{name}) = 'integer', e.{name}, NULL)"


def _decoded(text: object) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)


def _members(values: Mapping[str, str]) -> str:
    """Return SQL that adds members of a JSON object, without those that are NULL."""
    return " ".join(f"""|| coalesce(',"{key}":' || ({sql}), '')""" for key, sql in values.items())


def _case(value: str, texts: Mapping[int, str]) -> str:
    """Return SQL for the text of a number."""
    cases = " ".join(f"WHEN {number} THEN '{text}'" for number, text in texts.items())
    return f"CASE {value} {cases} ELSE 'unknown' END"


def _micros(ns: str) -> str:
    """Return SQL for a time in us, exact."""
    return f"printf('%d.%03d', {ns} / 1000, abs({ns} % 1000))"


def _process(number: str) -> str:
    """Return SQL for the process of a global id of a thread or process."""
    return f"(({number} >> 24) & {_THREAD})"


def _across_threads(known: Mapping[str, str]) -> str:
    """Return SQL for whether a range ends on another thread than it begins on."""
    return f"coalesce({known['endGlobalTid']} <> {known['globalTid']}, 0)"
