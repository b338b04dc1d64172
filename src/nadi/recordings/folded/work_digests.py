"""Digests of what a trace does, whatever time it takes and with whichever ranks."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import polars as pl

from nadi.recordings.folded.row_values import TIMES
from nadi.trace.arrays import numbered_texts
from nadi.trace.attributes import Attributes, LazyAttributes
from nadi.trace.operand_columns import AttributesWithOperands
from nadi.trace.trace import Trace

__all__ = ["WorkDigests"]


class WorkDigests:
    """Digests of traces; what several have in common is digested once.

    Two traces with the same digest of 128 bits do the same but for a chance of 2^-64 among
    four billion traces.
    """

    def __init__(self) -> None:
        # with what it is of, so that no other takes its place in memory
        self._known: dict[tuple[int, str], tuple[object, bytes]] = {}

    def whole(self, trace: Trace) -> bytes:
        """Return a digest that tells traces apart unless only their times differ."""
        said = _of_series([trace.nodes["src"], trace.nodes["dst"], trace.groups["name"]])
        return self.work(trace) + blake2b(said, digest_size=16).digest()

    def work(self, trace: Trace) -> bytes:
        """Return a digest of operations, without times, groups and peers."""
        digest = blake2b(digest_size=16)
        names = [name for name in trace.nodes.columns if name not in (*TIMES, "src", "dst")]
        digest.update(b"".join(self._series(trace.nodes[name]) for name in names))
        digest.update(self._of("deps", trace.deps, lambda: _of_frame(trace.deps)))
        digest.update(str(trace.groups.height).encode())
        given = trace.given_attributes
        digest.update(self._of("attributes", given, lambda: _of_attributes(given)))
        return digest.digest()

    def _series(self, series: pl.Series) -> bytes:
        return blake2b(_of_series([series]), digest_size=16).digest()

    def _of(self, what: str, value: object, made: object) -> bytes:
        key = id(value), what
        if key not in self._known:
            assert callable(made)
            self._known[key] = value, blake2b(made(), digest_size=16).digest()
        return self._known[key][1]


def _of_series(listed: list[pl.Series]) -> bytes:
    parts = []
    for series in listed:
        values = series
        if series.dtype == pl.String:
            numbers, texts = numbered_texts(series)
            parts.append("\0".join(texts).encode())
            values = pl.Series(numbers)
        parts.append(np.ascontiguousarray(values.to_physical().to_numpy()).tobytes())
        parts.append(str(series.len()).encode())
    return b"\1".join(parts)


def _of_frame(frame: pl.DataFrame) -> bytes:
    return _of_series(frame.get_columns())


def _of_attributes(given: Attributes | LazyAttributes) -> bytes:
    if isinstance(given, AttributesWithOperands):
        others, operands = given.without_operands, given.operands
        arrays = [one for one in operands if isinstance(one, np.ndarray)]
        content = b"\1".join(one.tobytes() for one in arrays)
        known = operands.types, operands.device, operands.roles
        return _plain(others) + content + repr(known).encode()
    return _plain(given.value if isinstance(given, LazyAttributes) else given)


def _plain(attributes: Attributes) -> bytes:
    own = attributes.with_own_bytes()
    order = sorted(range(len(own.names)), key=own.names.__getitem__)
    place = np.argsort(np.array(order, dtype=np.int64)) if order else np.zeros(0, dtype=np.int64)
    arrays = (own.node, place[own.name], own.type, own.value, own.length, own.buffers[0])
    said = "\0".join(own.names[k] for k in order).encode()
    return said + b"\1".join(np.ascontiguousarray(one).tobytes() for one in arrays)
