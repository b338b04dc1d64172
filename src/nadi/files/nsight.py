"""Read the SQLite export of Nsight Systems, as events that are those of a Kineto trace."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import msgspec
import numpy as np
import polars as pl

from nadi.errors import FormatError
from nadi.files.files import RawFile
from nadi.files.json_file import Texts
from nadi.files.kineto.foreign_events import (
    ForeignEvents,
    ForeignRecording,
    JsonTexts,
    are_usable,
    decode_events,
    is_step_mark,
    number_lists,
    with_step_marks,
)
from nadi.files.kineto.kineto_trace import MERGED
from nadi.files.read_columns import MISSING, ReadColumns
from nadi.files.remedies import NSIGHT
from nadi.files.sqlite_file import MAGIC, SqliteFile
from nadi.files.timeline.timeline_values import number_texts
from nadi.trace.arrays import Ints, Ints32
from nadi.trace.issues import IssueLog
from nadi.trace.trace import Trace

_THREAD = 0xFFFFFF
_MOST_PROCESSES = 1024
_UNSIGNED = 0xFFFFFFFF
_MARK, _RANGES = 34, (59, 60)  # of NVTX_EVENTS.eventType; pushed, started
# as emit_nvtx writes an operator; "seq" only where there is one
_OPERATOR = (
    r"(?s)^(?<name>.*?)(?:, seq = (?<seq>\d{1,18}))?, op_id = (?<op_id>\d{1,18})(?<rest>.*)$"
)
_SIZES = r"(?s), sizes = (.*?)(?:, input_op_ids = .*)?$"
_NCCL_CALL = r"^nccl[A-Z]\w*$"  # of its own ranges
_VERSION = re.compile(r"_v\d{4,5}$")
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
_ON_DEVICE = ("start", "end", "globalPid", "correlationId", "deviceId", "streamId", "contextId",
              "graphId", "graphNodeId")  # fmt: skip
COLUMNS = {
    _NVTX: ("start", "end", "eventType", "text", "globalTid", "endGlobalTid", "textId", "domainId"),
    _RUNTIME: ("start", "end", "globalTid", "correlationId", "eventClass", "nameId", "returnValue"),
    _KERNEL: (*_ON_DEVICE, "demangledName", "shortName", "registersPerThread",
              "staticSharedMemory", "dynamicSharedMemory",
              *(part + axis for part in ("grid", "block") for axis in "XYZ")),
    _MEMCPY: (*_ON_DEVICE, "copyKind", "bytes"),
    _MEMSET: (*_ON_DEVICE, "bytes"),
    _SYNC: (*_ON_DEVICE, "syncType", "eventId"),
}  # fmt: skip
"""The columns that are read of each table."""
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
    return head.startswith(MAGIC)


def decode(raw: RawFile) -> Trace:
    """Read an export of Nsight Systems.

    - Returns: Nodes with their times in ns since 1970: NVTX ranges of PyTorch's operators and
      others, calls of CUDA, and device work with the call that launched it. Processes are told
      apart by their ids and correlation ids, and are ranks in the order of their ids.
    - Raises FormatError if the database is broken, or is no export of Nsight Systems.
    """
    return decode_events(raw, recording(raw), NSIGHT)


def recording(raw: RawFile) -> ForeignRecording:
    """Return the events, and what the export does not hold.

    - Raises FormatError as :func:`decode`, also while events are looked at.
    """
    export = _Export(SqliteFile(raw), raw.name)
    base = export.database.read("TARGET_INFO_SESSION_START_TIME", ["utcEpochNs"])
    (start,) = base.numbers("utcEpochNs")[:1] if base.height else (0,)
    return ForeignRecording(export.events(), export.log, int(start) if 0 <= start < 2**62 else 0)


class _Export:
    """The tables of an export; those without rows are absent, and columns differ by version."""

    def __init__(self, database: SqliteFile, name: str) -> None:
        self.database, self.name, self.log = database, name, IssueLog()
        told = database.read("META_DATA_EXPORT", ["value"])
        if not any("Nsight Systems" in text for text in told.texts("value").unique):
            raise FormatError(
                name, "a SQLite database, but not an export of Nsight Systems",
                "let nsys export write it, of type sqlite",
            )  # fmt: skip
        strings = database.read("StringIds", ["id", "value"])
        self.ids, self.strings = strings.numbers("id"), strings.texts("value")
        self.order = np.argsort(self.ids, kind="stable")
        self.tables = {table: database.read(table, columns) for table, columns in COLUMNS.items()}
        self.processes = self.found_processes()
        self.has_operators = False

    def found_processes(self) -> Ints:
        """Return the ids of the processes that have work; int64, ascending."""
        ids = [_process(table.numbers(_PROCESS_OF[name])) for name, table in self.tables.items()]
        found = pl.Series(np.concatenate(ids)).unique().sort().to_numpy()
        found = found[found >= 0]
        if found.size > _MOST_PROCESSES:
            raise FormatError(
                self.name, f"more than {_MOST_PROCESSES} processes have work",
                "export the report again",
            )  # fmt: skip
        return found

    def events(self) -> Iterator[ForeignEvents]:
        """Return all events, a table at a time."""
        yield self.ranges()
        yield self.calls()
        yield self.kernels()
        copied, filled = self.tables[_MEMCPY], self.tables[_MEMSET]
        names = {kind: f"Memcpy {name}" for kind, name in _COPIES.items()}
        yield self.on_device(
            _MEMCPY, _cases(copied.numbers("copyKind"), names, "Memcpy unknown"), "gpu_memcpy",
            {"bytes": copied.numbers("bytes")},
        )  # fmt: skip
        yield self.on_device(
            _MEMSET, _same("Memset (Device)", filled.height), "gpu_memset",
            {"bytes": filled.numbers("bytes")},
        )  # fmt: skip
        yield self.syncs()
        self.add_issues()

    def made(
        self, table: str, name: Texts, category: Texts, place: Mapping[str, Ints],
        args: Mapping[str, Ints | Texts], rows: Ints | None = None,
    ) -> ForeignEvents:  # fmt: skip
        """Return an event for each row that has times, of all or some rows of a table.

        ``place`` says where it ran.
        """
        read = self.tables[table]
        start, end = read.numbers("start"), read.numbers("end")
        duration = np.where((end != MISSING) & (start >= 0), end - start, -1)
        rows = np.arange(read.height) if rows is None else rows
        rows = rows[are_usable(
            start[rows], duration[rows], f"rows of {table}", "nsight", self.log
        )]  # fmt: skip
        pid = _process(read.numbers(_PROCESS_OF[table]))
        told: dict[str, Ints | Texts] = {
            "process": pid,
            "correlation": self.correlation(read, pid),
            **({"rank": self.rank(pid)} if self.processes.size > 1 else {}),
            **args,
        }
        return ForeignEvents(
            category=_taken(category, rows), name=_taken(name, rows),
            pid=_known(place["pid"][rows]), tid=_known(place["tid"][rows]),
            start=start[rows], duration=duration[rows],
            args={key: _taken(one, rows) if isinstance(one, Texts) else _known(one[rows])
                  for key, one in told.items()},
        )  # fmt: skip

    def rank(self, pid: Ints) -> Ints:
        """Return the number of processes, -1 for none."""
        return np.where(pid < 0, -1, np.searchsorted(self.processes, pid))

    def correlation(self, read: ReadColumns, pid: Ints) -> Ints:
        """Return the correlation ids of rows, which are those of a process; -1 for none."""
        number = read.numbers("correlationId")
        is_known = (number != MISSING) & (pid >= 0)
        return np.where(is_known, number & _UNSIGNED | self.rank(pid) << 32, -1)

    def on_device(
        self, table: str, name: Texts, category: str, args: Mapping[str, Ints | Texts],
        device: Ints | None = None,
    ) -> ForeignEvents:  # fmt: skip
        """Return an event for each row of work on a device."""
        read = self.tables[table]
        device = read.numbers("deviceId") if device is None else device
        stream = read.numbers("streamId")
        told = {
            "device": device, "stream": stream, "context": read.numbers("contextId"),
            "graph id": read.numbers("graphId"), "graph node id": read.numbers("graphNodeId"),
            **args,
        }  # fmt: skip
        place = {"pid": device, "tid": stream}
        return self.made(table, name, _same(category, read.height), place, told)

    def calls(self) -> ForeignEvents:
        """Return the calls of CUDA's runtime and driver, by their names without a version."""
        read = self.tables[_RUNTIME]
        names = self.named(read.numbers("nameId"))
        bare = Texts(names.codes, tuple(_VERSION.sub("", name) for name in names.unique))
        category = _cases(read.numbers("eventClass"), {1: "cuda_driver"}, "cuda_runtime")
        returned = read.numbers("returnValue")
        return self.made(_RUNTIME, bare, category, _on_thread(read),
                         {"returned": np.where(returned == 0, -1, returned)})  # fmt: skip

    def kernels(self) -> ForeignEvents:
        """Return the kernels."""
        read = self.tables[_KERNEL]
        static, dynamic = (read.numbers(f"{kind}SharedMemory") for kind in ("static", "dynamic"))
        memory = np.where((static < 0) | (dynamic < 0), -1, static + dynamic)
        return self.on_device(
            _KERNEL, self.named(read.numbers("demangledName"), read.numbers("shortName")),
            "kernel",
            {**{part: number_lists([np.maximum(read.numbers(part + axis), 0) for axis in "XYZ"])
                for part in ("grid", "block")},
             "registers per thread": read.numbers("registersPerThread"), "shared memory": memory},
        )  # fmt: skip

    def syncs(self) -> ForeignEvents:
        """Return the waits for events, streams and devices.

        They state device 0 whatever the device is: it is that of other work of the context.
        """
        read = self.tables[_SYNC]
        known = pl.concat([_contexts(self.tables[table]) for table in _WORK if table != _SYNC])
        known = known.group_by("process", "context").agg(known=pl.max("device"))
        told = _contexts(read).join(
            known, on=["process", "context"], how="left", maintain_order="left"
        )
        device = told.select(pl.coalesce("known", "device").fill_null(-1)).to_series().to_numpy()
        event = read.numbers("eventId")
        return self.on_device(
            _SYNC, _cases(read.numbers("syncType"), _SYNCS, "unknown"), "cuda_sync",
            {"wait_on_cuda_event_id": np.where(event == _UNSIGNED, -1, event)}, device,
        )  # fmt: skip

    def ranges(self) -> ForeignEvents:
        """Return NVTX's ranges; those of PyTorch's emit_nvtx and NCCL's own calls are operators.

        It writes `name, seq = 1, op_id = 2, sizes = [[3]], input_op_ids = [...]`, seq where there
        is one.
        """
        read = self.tables[_NVTX]
        own, shared = read.texts("text"), self.named(read.numbers("textId"))
        codes = np.where(own.codes < 0, len(own.unique) + shared.codes, own.codes)
        texts = pl.Series([*own.unique, *shared.unique], dtype=pl.String)
        told = texts.str.extract_groups(_OPERATOR).struct.unnest()
        is_operator = told["op_id"].is_not_null()
        name = told["name"].fill_null(texts)
        is_call = is_operator | name.str.contains(_NCCL_CALL)
        label = ~is_call | name.str.starts_with("nccl:")
        sizes, dims = _distinct(told["rest"].str.extract(_SIZES), codes)
        is_list = np.array([*map(_is_list, sizes), False])
        distinct, code = _distinct(name, codes)
        names = with_step_marks(Texts(code, distinct), read.numbers("globalTid"))
        is_label = label.to_numpy()[codes] | (names.numbers(is_step_mark) == 1)
        numbers = {key: told[key].cast(pl.Int64).fill_null(-1).to_numpy()[codes]
                   for key in ("op_id", "seq")}  # fmt: skip
        self.has_operators = bool(is_operator.any())
        return self.made(
            _NVTX, names, Texts(is_label.astype(np.int32), ("cpu_op", "user_annotation")),
            _on_thread(read),
            {"domain": read.numbers("domainId"), "op_id": numbers["op_id"],
             "Sequence number": numbers["seq"],
             "Input Dims": JsonTexts(np.where(is_list[dims], dims, -1), sizes)},
            self.closed_ranges(read),
        )  # fmt: skip

    def closed_ranges(self, read: ReadColumns) -> Ints:
        """Return the rows of ranges that begin and end on a thread; count the others."""
        kind, thread = read.numbers("eventType"), read.numbers("globalTid")
        other = read.numbers("endGlobalTid")
        is_range, is_open = np.isin(kind, _RANGES), read.numbers("end") == MISSING
        across = (other != MISSING) & (thread != MISSING) & (other != thread)
        for code, severity, rows, what in (
            ("marks", "info", kind == _MARK, "NVTX marks have no duration"),
            ("open-ranges", "warning", is_range & is_open, "NVTX ranges have no end in the export"),
            ("across-threads", "warning", is_range & ~is_open & across,
             "NVTX ranges end on another thread than they begin on"),
        ):  # fmt: skip
            self.log.add(f"nsight.{code}", severity, int(rows.sum()), what, "they are left out")
        return np.flatnonzero(is_range & ~is_open & ~across)

    def named(self, *ids: Ints) -> Texts:
        """Return for each row the first text of some ids."""
        codes = np.full(ids[0].size, -1, dtype=np.int64)
        for wanted in ids if self.ids.size else ():
            place = np.searchsorted(self.ids, wanted, sorter=self.order)
            row = self.order[np.minimum(place, self.ids.size - 1)]
            is_there = (self.ids[row] == wanted) & (wanted != MISSING)
            codes = np.where((codes < 0) & is_there, self.strings.codes[row], codes)
        used, code = np.unique(codes, return_inverse=True)
        texts = ("unnamed" if one < 0 else self.strings.unique[one] for one in used.tolist())
        return Texts(code.astype(np.int32), tuple(texts))

    def add_issues(self) -> None:
        """Record what the export has besides the events, and what it has not."""
        log = self.log
        for table, what in _UNREAD.items():
            log.add("nsight.not-read", "info", self.database.height(table), f"{what} ({table})",
                    _REMEDY)  # fmt: skip
        log.add(
            "nsight.no-operators", "info", int(not self.has_operators),
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
            MERGED, "warning", self.processes.size if self.processes.size > 1 else 0,
            "processes have work in the file, as if ranks were merged into it",
            "nadi run reads them as ranks; other commands read one trace",
        )  # fmt: skip

    def unlaunched(self) -> int:
        """Count the kernels, copies and fills whose call is not in the export."""
        calls, *work = (
            self.correlation(read, _process(read.numbers(_PROCESS_OF[table])))
            for table, read in self.tables.items() if table not in (_NVTX, _SYNC)
        )  # fmt: skip
        known = pl.Series(calls).unique().implode()
        return sum(int((~pl.Series(one).is_in(known)).sum()) for one in work)


def _process(number: Ints) -> Ints:
    """Return the processes of global ids of threads or processes, -1 for none."""
    return np.where(number == MISSING, -1, number >> 24 & _THREAD)


def _on_thread(read: ReadColumns) -> dict[str, Ints]:
    thread = read.numbers("globalTid")
    return {"pid": _process(thread), "tid": np.where(thread == MISSING, -1, thread & _THREAD)}


def _contexts(read: ReadColumns) -> pl.DataFrame:
    """Return the process, the context and the device of each row, null where there is none."""
    names = {"process": "globalPid", "context": "contextId", "device": "deviceId"}
    return pl.DataFrame({key: read.numbers(name) for key, name in names.items()}).with_columns(
        pl.when(pl.all() != MISSING).then(pl.all())
    )


def _known(values: Ints) -> Ints:
    return np.where(values == MISSING, -1, values)


def _same(word: str, count: int) -> Texts:
    return Texts(np.zeros(count, dtype=np.int32), (word,))


def _taken(texts: Texts, rows: Ints) -> Texts:
    return replace(texts, codes=texts.codes[rows])


def _cases(values: Ints, words: Mapping[int, str], otherwise: str) -> Texts:
    """Return the words of numbers."""
    known, code = np.unique(values, return_inverse=True)
    return Texts(code.astype(np.int32), tuple(words.get(one, otherwise) for one in known.tolist()))


def _distinct(texts: pl.Series, codes: Ints) -> tuple[tuple[str, ...], Ints32]:
    """Return each text once, and its number by the codes of ``texts``, -1 for null."""
    known, number = number_texts(texts)
    return tuple(known), (number - 1).astype(np.int32)[codes]


def _is_list(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), list)
    except (msgspec.DecodeError, RecursionError):
        return False
