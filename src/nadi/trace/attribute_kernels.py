"""Attributes in bulk: spans put together, and attributes of several sources in order of node."""

from typing import NamedTuple

import numpy as np

from nadi.kernels.jit import borrowed, kernel
from nadi.kernels.json_tokens import MAX_DEPTH, skip_value


@kernel
def first_no_json(buffer: np.ndarray, begin: np.ndarray, length: np.ndarray) -> int:
    """Return the first span that is not one value of JSON, or -1; an empty one is none. O(bytes).

    - ``buffer``: uint8.
    - ``begin``, ``length``: int64, shape (spans,).
    """
    content = borrowed(buffer)
    stack = np.empty(MAX_DEPTH, dtype=np.uint8)
    for span in range(begin.size):
        one = content[begin[span] : begin[span] + length[span]]
        if one.size and skip_value(one, 0, stack) != one.size:
            return span
    return -1


@kernel
def copy_spans(buffer: np.ndarray, begin: np.ndarray, length: np.ndarray, out: np.ndarray) -> None:
    """Put spans one after the other. O(bytes).

    - ``buffer``, ``out``: uint8; ``out`` is as long as all spans together.
    - ``begin``, ``length``: int64, shape (spans,).
    """
    at = 0
    for span in range(begin.size):
        for i in range(length[span]):
            out[at + i] = buffer[begin[span] + i]
        at += length[span]


@kernel
def place_spans(
    buffer: np.ndarray, begin: np.ndarray, length: np.ndarray, to: np.ndarray, out: np.ndarray
) -> None:
    """Put each span where it is to begin in ``out``. O(bytes).

    - ``buffer``, ``out``: uint8.
    - ``begin``, ``length``, ``to``: int64, shape (spans,).
    """
    for span in range(begin.size):
        for i in range(length[span]):
            out[to[span] + i] = buffer[begin[span] + i]


@kernel
def count_attributes(
    node: np.ndarray, new_row: np.ndarray, is_kept: np.ndarray, count: np.ndarray
) -> None:
    """Add to the number of attributes that each node will have. O(attributes).

    - ``node``: int32, shape (attributes,): row of each one's node; -1 for the trace itself.
    - ``new_row``: int64, shape (nodes,): where each node goes; -1 if nowhere, and its attributes
      neither.
    - ``is_kept``: bool, shape (attributes,).
    - ``count``: int64, shape (new nodes + 1,): of the trace itself, then of each node.
    """
    for i in range(node.size):
        to = new_row[node[i]] if node[i] >= 0 else -1
        if is_kept[i] and (to >= 0 or node[i] < 0):
            count[to + 1] += 1


@kernel
def place_attributes(
    columns: tuple[np.ndarray, ...],
    new_row: np.ndarray,
    is_kept: np.ndarray,
    new_name: np.ndarray,
    shift: np.ndarray,
    at: np.ndarray,
    out: tuple[np.ndarray, ...],
) -> None:
    """Put attributes where they belong among those of all sources. O(attributes).

    - ``columns``, ``out``: node, name, type, value and length, as
      :class:`nadi.trace.attributes.Attributes` has them.
    - ``new_row``, ``is_kept``: As in :func:`count_attributes`.
    - ``new_name``: int32, shape (names,): the code of each name among all names.
    - ``shift``: int64, shape (types,): what is added to the values of each type.
    - ``at``: int64, shape (new nodes + 1,): where the next attribute of each goes; moved on.
    """
    node, name, kind, value, length = columns
    out_node, out_name, out_kind, out_value, out_length = out
    for i in range(node.size):
        to = new_row[node[i]] if node[i] >= 0 else -1
        if is_kept[i] and (to >= 0 or node[i] < 0):
            place = at[to + 1]
            at[to + 1] = place + 1
            out_node[place] = to
            out_name[place] = new_name[name[i]]
            out_kind[place] = kind[i]
            out_value[place] = value[i] + shift[kind[i]]
            out_length[place] = length[i]


@kernel
def count_kept(kept: np.ndarray, first_node: int, new_row: np.ndarray, count: np.ndarray) -> int:
    """Add to the number of attributes of each node what a scan of nodes kept. O(attributes).

    - ``kept``: int64, shape (attributes, 3), as ``Found`` of the reader of host traces has it.
    - ``first_node``: The node that the scan calls 0.
    - ``new_row``, ``count``: As in :func:`count_attributes`; every node goes somewhere.
    - Returns: Bytes of all spans.
    """
    size = 0
    for i in range(kept.shape[0]):
        count[new_row[(kept[i, 0] >> 32) + first_node] + 1] += 1
        size += kept[i, 2] >> 6
    return size


class KeptValues(NamedTuple):
    """What a scan of nodes kept, and what it lies in."""

    # int64, shape (attributes, 3), as ``Found`` of the reader of host traces has it
    kept: np.ndarray
    # int32, shape (names,): the codes of names that the scan did not know, numbered from -1
    # downwards
    new_name: np.ndarray
    types: np.ndarray  # uint8, shape (kinds,): the type of each kind of value
    # text, unescaped: uint8: what spans lie in: the file, and as if they stood after it the texts
    # without escapes
    text: np.ndarray
    unescaped: np.ndarray


@kernel
def place_kept(
    values: KeptValues,
    first_node: int,
    new_row: np.ndarray,
    at: np.ndarray,
    out: tuple[np.ndarray, ...],
    content: np.ndarray,
    end: int,
) -> int:
    """Put what a scan of nodes kept where it belongs among all attributes. O(attributes).

    - ``values``: What was kept.
    - ``first_node``, ``new_row``: As in :func:`count_kept`.
    - ``at``, ``out``: As in :func:`place_attributes`.
    - ``content``, ``end``: uint8: what spans are copied to, from a byte on.
    - Returns: The byte after them.
    """
    kept, new_name, types, text, unescaped = borrowed(values)
    out_node, out_name, out_kind, out_value, out_length = out
    for i in range(kept.shape[0]):
        code, value, length = np.int32(kept[i, 0] & 0xFFFFFFFF), kept[i, 1], kept[i, 2] >> 6
        row = new_row[(kept[i, 0] >> 32) + first_node]
        place = at[row + 1]
        at[row + 1] = place + 1
        if length > 0:
            if value < text.size:
                for k in range(length):
                    content[end + k] = text[value + k]
            else:
                for k in range(length):
                    content[end + k] = unescaped[value - text.size + k]
            value = end
            end += length
        out_node[place] = row
        out_name[place] = code if code >= 0 else new_name[-1 - code]
        out_kind[place] = types[kept[i, 2] & 63]
        out_value[place] = value
        out_length[place] = length
    return end
