"""Write timelines in Chrome's trace event format, for ui.perfetto.dev and chrome://tracing.

The code that writes slices is shared with Kineto's files, which also have this format: see
:mod:`nadi.files.kineto.kineto_encode`.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import polars as pl

from nadi.files.timeline import chrome_kernels as kernels
from nadi.files.timeline.timeline_values import (
    CRITICAL,
    PATH_CATEGORY,
    Timeline,
    TimelineCounter,
    number_texts,
)
from nadi.trace.arrays import Bytes, Ints
from nadi.trace.issues import IssueLog

_BYTES_AT_ONCE = 1 << 20  # which a processor's cache holds
_ARROWS_AT_ONCE = 100_000
_RED = b'"cq_build_failed"'  # of the few colors that chrome://tracing knows by name
# what stands before the columns that every event has
_PREFIXES = (',"cat":', ',"name":', ',"pid":', ',"tid":', ',"ts":', ',"dur":')
_KINDS = (
    kernels.TEXT, kernels.TEXT, kernels.NUMBER, kernels.NUMBER,
    kernels.NANOSECONDS, kernels.NANOSECONDS,
)  # fmt: skip


def encode(timeline: Timeline, _: IssueLog) -> Iterator[bytes]:
    """Write a timeline; yields the pieces of the file. The format holds all of it. O(bytes)."""
    texts = NumberedTexts()
    columns = slice_columns(timeline, texts)
    # slices on the path are red: a key of theirs, which is the same for all
    is_red = np.asarray(timeline.notes[CRITICAL].to_numpy(), dtype=np.int64)
    none = np.zeros(int(is_red.sum()), dtype=np.int64)
    spans: dict[str, Any] = {
        "first_span": np.concatenate([[0], np.cumsum(is_red)]),
        "role": np.full(none.size, kernels.OTHER, dtype=np.uint8),
        "key": none + texts.add([',"cname":']),
        "at": none,
        "length": none + len(_RED),
        "recorded": np.frombuffer(_RED, dtype=np.uint8).copy(),
    }
    first_text, content = texts.table()
    events = kernels.EventColumns(
        order=np.arange(is_red.size), first_text=first_text, texts=content, **columns, **spans
    )
    yield b'{"nadiTimeline":1,"displayTimeUnit":"ns","otherData":{"title":'
    yield msgspec.json.encode(timeline.title) + b'},"traceEvents":[\n'
    yield b",\n".join(titles(timeline))
    if is_red.size:
        yield b",\n"
    yield from written_pieces(events)
    for phase, ends in (("s", timeline.tail), ("f", timeline.head)):
        for low in range(0, ends.size, _ARROWS_AT_ONCE):
            yield b",\n" + _ends(phase, timeline, ends[low : low + _ARROWS_AT_ONCE], low)
    for process, counter in timeline.counters:
        if counter.time.size:
            yield b",\n" + _values(timeline.processes["number"][process], counter)
    yield b"\n]}\n"


class NumberedTexts:
    """Texts, each with its number."""

    def __init__(self) -> None:
        self._texts: list[bytes] = []

    def add(self, texts: Iterable[str]) -> int:
        """Add texts; returns the number of the first."""
        first = len(self._texts)
        self._texts += [text.encode() for text in texts]
        return first

    def add_json(self, values: Iterable[str], end: bytes = b"") -> int:
        """Add texts as JSON strings."""
        first = len(self._texts)
        lines = msgspec.json.Encoder().encode_lines(values).split(b"\n")  # none has a new line
        self._texts += [line + end for line in lines[:-1]]
        return first

    def table(self) -> tuple[Ints, Bytes]:
        """Return the begin of each text and the end of the last, and the bytes of all."""
        first = np.cumsum([0, *map(len, self._texts)], dtype=np.int64)
        return first, np.frombuffer(b"".join(self._texts), dtype=np.uint8).copy()


def slice_columns(timeline: Timeline, texts: NumberedTexts) -> dict[str, Any]:
    """Return the columns of events, and the text before each.

    They are fields of ``chrome_kernels.Events``; texts are added to ``texts``.
    """
    track, start, end = timeline.times()
    process, tid = (timeline.tracks[name].to_numpy() for name in ("process", "number"))
    pid = timeline.processes["number"].to_numpy()[process]
    columns = [
        *(_text_numbers(timeline.slices[name], texts) for name in ("category", "name")),
        pid[track], tid[track], start, end - start,
    ]  # fmt: skip
    kinds = list(_KINDS)
    for note in timeline.notes.values():
        if note.dtype == pl.Int64:
            columns.append(note.to_numpy())
        elif note.dtype == pl.Boolean:
            columns.append(np.where(note, texts.add(["true"]), -1))
        else:
            columns.append(_text_numbers(note, texts))
        kinds.append(kernels.NUMBER if note.dtype == pl.Int64 else kernels.TEXT)
    first_prefix = texts.add(_PREFIXES)
    texts.add_json(timeline.notes, b":")
    return {
        "values": np.stack(columns),
        "kind": np.array(kinds, dtype=np.uint8),
        "prefix": first_prefix + np.arange(len(columns)),
        "head": texts.add(['{"ph":"X"']),
        "args": texts.add([',"args":']),
    }


def _text_numbers(series: pl.Series, texts: NumberedTexts) -> Ints:
    """Add texts as JSON strings; return the number of each element's text, -1 for null."""
    known, number = number_texts(series)
    return np.where(number > 0, number - 1 + texts.add_json(known), -1)


def written_pieces(
    events: kernels.EventColumns, length: Ints | None = None,
    write: Callable[..., int] = kernels.write_events,
) -> Iterator[bytes]:  # fmt: skip
    """Yield the events in small pieces.

    - ``length``: int64, shape (events,), filled: the bytes of each, without what is between them.
    - ``write``: What is written of each: the event, or its arguments (``kernels.write_args``).
    """
    if length is None:
        length = np.empty(events.order.size, dtype=np.int64)
    size = np.concatenate([[0], np.cumsum(_largest_sizes(events)[events.order])])
    out = np.empty(0, dtype=np.uint8)
    low = 0
    while low < events.order.size:
        high = int(np.searchsorted(size, size[low] + _BYTES_AT_ONCE, side="right")) - 1
        high = max(high, low + 1)
        if size[high] - size[low] > out.size:
            out = np.empty(int(size[high] - size[low]), dtype=np.uint8)
        yield out[: write(length, events, low, high, out)].tobytes()
        low = high


def _largest_sizes(events: kernels.EventColumns) -> Ints:
    """Return upper bounds of the bytes of every row, followed by those of spans, from the end."""
    text = np.diff(events.first_text)
    spans = np.concatenate([[0], np.cumsum(events.length + text[events.key])])
    of_rows = kernels.BYTES_PER_EVENT + np.diff(spans[events.first_span])
    of_rows += int(text[events.prefix].sum() + text[events.head] + text[events.args])
    for kind, values in zip(events.kind, events.values, strict=True):
        of_texts = text[np.maximum(values, 0)] if kind == kernels.TEXT else None
        of_rows += kernels.BYTES_PER_NUMBER if of_texts is None else of_texts
    return np.concatenate([of_rows, kernels.BYTES_PER_EVENT + events.length[::-1]])


def titles(timeline: Timeline) -> Iterator[bytes]:
    """Name and order processes and tracks."""
    first = min(timeline.tracks["number"].to_list(), default=0)
    for place, process in enumerate(timeline.processes.iter_rows(named=True)):
        about: dict[str, dict[str, Any]] = {"process_name": {"name": process["title"]}}
        if "label" in process:
            about["process_labels"] = {"labels": process["label"]}
        about["process_sort_index"] = {"sort_index": place}
        yield from _metadata(about, process["number"], first)
    number = timeline.processes["number"].to_list()
    for place, track in enumerate(timeline.tracks.iter_rows(named=True)):
        about = {
            "thread_name": {"name": track["title"]},
            "thread_sort_index": {"sort_index": place},
        }
        yield from _metadata(about, number[track["process"]], track["number"])


def _metadata(about: dict[str, dict[str, Any]], pid: int, tid: int) -> Iterator[bytes]:
    for name, args in about.items():
        yield msgspec.json.encode({"ph": "M", "pid": pid, "tid": tid, "name": name, "args": args})


def _values(pid: int, counter: TimelineCounter) -> bytes:
    """Write a counter: an event with each new value."""
    name, unit = (msgspec.json.encode(text).decode() for text in (counter.title, counter.unit))
    unit = '"value"' if not counter.unit else unit
    time = pl.Series(counter.time)
    events = pl.select(
        pl.concat_str(
            pl.lit(f'{{"ph":"C","name":{name},"pid":{pid},"ts":'), _microseconds(time),
            pl.lit(f',"args":{{{unit}:'), pl.Series(counter.value), pl.lit("}}"),
        )
    )  # fmt: skip
    return events.to_series().str.join(",\n").item().encode()  # type: ignore[no-any-return]


def _microseconds(time: pl.Series) -> pl.Expr:
    """Write times in ns as microseconds with three decimals."""
    return pl.concat_str(
        time // 1000, pl.lit("."), (time % 1000).cast(pl.String).str.zfill(3)
    )  # fmt: skip


def _ends(phase: str, timeline: Timeline, ends: Ints, first: int) -> bytes:
    """Write one end of arrows, numbered from ``first``."""
    track, start, end = (values[ends // 2] for values in timeline.times())
    tracks = timeline.tracks[track]
    head = f'{{"ph":"{phase}","bp":"e","cat":"{PATH_CATEGORY}","name":"critical path","id":'
    time = pl.Series(np.where(ends % 2, end, start))
    events = pl.select(
        pl.concat_str(
            pl.lit(head), pl.lit(first + np.arange(ends.size)),
            pl.lit(',"pid":'), timeline.processes["number"].gather(tracks["process"]),
            pl.lit(',"tid":'), tracks["number"],
            pl.lit(',"ts":'), _microseconds(time), pl.lit("}"),
        )
    )  # fmt: skip
    return events.to_series().str.join(",\n").item().encode()  # type: ignore[no-any-return]
