"""Perfetto's packets of slices, written from columns.

A protobuf message says its length before its content. Packets are written from the end
of the array to its start, so that a length is known when its turn comes: one pass, and
no length is longer than it must be.
"""

from typing import NamedTuple

import numpy as np

from nadi.kernels.jit import borrowed, inner, kernel

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_SLICE_BEGIN, _SLICE_END = 1, 2
_NEEDS_STATE = 2  # SEQ_NEEDS_INCREMENTAL_STATE: the packet uses interned texts

_PACKET = 1 << 3 | _BYTES  # of Trace
_TIMESTAMP = 8 << 3 | _VARINT  # of TracePacket
_SEQUENCE = 10 << 3 | _VARINT
_TRACK_EVENT = 11 << 3 | _BYTES
_SEQUENCE_FLAGS = 13 << 3 | _VARINT
_CATEGORY = 3 << 3 | _VARINT  # of TrackEvent
_ANNOTATION = 4 << 3 | _BYTES
_TYPE = 9 << 3 | _VARINT
_NAME = 10 << 3 | _VARINT
_TRACK = 11 << 3 | _VARINT
_FLOW = 47 << 3 | _FIXED64
_LAST_FLOW = 48 << 3 | _FIXED64
_ANNOTATION_NAME = 1 << 3 | _VARINT  # of DebugAnnotation
_INTEGER = 4 << 3 | _VARINT
_TEXT = 17 << 3 | _VARINT

# upper bounds; a number takes at most 10 bytes
BYTES_PER_PACKET = 80
BYTES_PER_VALUE = 26
BYTES_PER_FLOW = 10


class Slices(NamedTuple):
    """Slices in columns, and the order of their starts and ends."""

    # int64, shape (packets,): ``2 * slice`` is the start of a slice, ``2 * slice + 1`` its end
    boundary: np.ndarray
    # start, end: int64 ns, shape (slices,), 0 or more
    start: np.ndarray
    end: np.ndarray
    # track, name, category: int64, shape (slices,): the track's uuid; numbers of interned texts,
    # from 1, those of categories below 128
    track: np.ndarray
    name: np.ndarray
    category: np.ndarray
    # int64, shape (fields, slices): what is noted of each slice; -1 is left out
    values: np.ndarray
    # bool, shape (fields,): whether the values are numbers of interned texts. The name of field f,
    # of fewer than 127, is the interned text f + 1.
    is_text: np.ndarray
    # int64, shape (2 * slices + 1,): boundary b has the flows ``first_flow[b]:first_flow[b + 1]``
    first_flow: np.ndarray
    flow: np.ndarray  # uint64, shape (flow ends,): id of each flow
    is_last: np.ndarray  # bool, shape (flow ends,): whether the flow ends there


@inner
def _varint(out: np.ndarray, at: int, number: int) -> int:
    """Write a number so that it ends before ``at``; give where it begins."""
    rest = np.uint64(number)
    size = 1
    while rest >= np.uint64(128):
        rest >>= np.uint64(7)
        size += 1
    at -= size
    rest = np.uint64(number)
    for i in range(at, at + size - 1):
        out[i] = np.uint8(rest & np.uint64(127) | np.uint64(128))
        rest >>= np.uint64(7)
    out[at + size - 1] = np.uint8(rest)
    return at


@inner
def _tag(out: np.ndarray, at: int, tag: int) -> int:
    """Write a tag, which takes one byte for fields to 15 and two to 2047."""
    if tag < 128:
        out[at - 1] = tag
        return at - 1
    out[at - 1] = tag >> 7
    out[at - 2] = tag & 127 | 128
    return at - 2


@inner
def _field(out: np.ndarray, at: int, tag: int, number: int) -> int:
    """Write a tag and a number before ``at``."""
    return _tag(out, _varint(out, at, number), tag)


@inner
def _small(out: np.ndarray, at: int, tag: int, number: int) -> int:
    """Write a tag and a number below 128: one byte."""
    out[at - 1] = number
    return _tag(out, at - 1, tag)


@inner
def _flow_ids(
    out: np.ndarray, at: int, flow: np.ndarray, is_last: np.ndarray, low: int, high: int
) -> int:
    """Write the flows ``low:high``."""
    for i in range(low, high):
        for k in range(8):
            at -= 1
            out[at] = np.uint8(flow[i] >> np.uint64(56 - 8 * k) & np.uint64(255))
        at = _tag(out, at, _LAST_FLOW if is_last[i] else _FLOW)
    return at


@inner
def _annotations(
    out: np.ndarray, at: int, values: np.ndarray, is_text: np.ndarray, row: int
) -> int:
    """Write the values that a slice has."""
    for f in range(is_text.size - 1, -1, -1):
        value = values[f, row]
        if value != -1:
            end = at
            at = _field(out, at, _TEXT if is_text[f] else _INTEGER, value)
            at = _small(out, at, _ANNOTATION_NAME, f + 1)
            at = _small(out, at, _ANNOTATION, end - at)
    return at


@kernel
def write_packets(slices: Slices, sequence: int, low: int, high: int, out: np.ndarray) -> int:
    """Write one packet for each of ``boundary[low:high]``, ending with the last byte of ``out``.

    - ``slices``: What is written.
    - ``sequence``: Id of the packet sequence that interned the texts.
    - ``low``, ``high``: Range of ``slices.boundary``.
    - ``out``: uint8: long enough for ``BYTES_PER_PACKET`` a packet, ``BYTES_PER_VALUE`` a value and
      ``BYTES_PER_FLOW`` an end of a flow.
    - Returns: Where the packets begin in ``out``. O(packets x fields).
    """
    slices = borrowed(slices)
    first_flow = slices.first_flow
    at = out.size
    for i in range(high - 1, low - 1, -1):
        boundary = slices.boundary[i]
        row = boundary // 2
        is_end = boundary % 2 == 1
        end_of_packet = at
        low_flow, high_flow = first_flow[boundary], first_flow[boundary + 1]
        at = _flow_ids(out, at, slices.flow, slices.is_last, low_flow, high_flow)
        if not is_end:
            at = _annotations(out, at, slices.values, slices.is_text, row)
            at = _field(out, at, _NAME, slices.name[row])
            at = _small(out, at, _CATEGORY, slices.category[row])
        at = _field(out, at, _TRACK, slices.track[row])
        at = _small(out, at, _TYPE, _SLICE_END if is_end else _SLICE_BEGIN)
        at = _field(out, at, _TRACK_EVENT, end_of_packet - at)
        at = _small(out, at, _SEQUENCE_FLAGS, _NEEDS_STATE)
        at = _field(out, at, _SEQUENCE, sequence)
        at = _field(out, at, _TIMESTAMP, slices.end[row] if is_end else slices.start[row])
        at = _field(out, at, _PACKET, end_of_packet - at)
    return at
