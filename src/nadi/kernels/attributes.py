"""Attributes in bulk: numbers put where their nodes are, spans put together."""

from __future__ import annotations

import numpy as np

from nadi.kernels._jit import kernel

__all__ = ["copy_spans", "scatter_numbers"]


@kernel
def scatter_numbers(
    node: np.ndarray,
    name: np.ndarray,
    type_code: np.ndarray,
    value: np.ndarray,
    column_of: np.ndarray,
    is_number: np.ndarray,
    out: np.ndarray,
) -> None:
    """Fill columns from attributes that are numbers of 0 or more. O(attributes).

    Parameters
    ----------
    node, name, type_code, value
        Of :class:`nadi.attributes.Attributes`; those of the trace itself are passed over.
    column_of
        int64, shape (names,): the column that a name goes to; -1 for none.
    is_number
        bool, shape (types,).
    out
        int64, shape (columns, nodes); entries without an attribute stay as they are.
    """
    for row in range(node.size):
        column = column_of[name[row]]
        if column >= 0 and node[row] >= 0 and value[row] >= 0 and is_number[type_code[row]]:
            out[column, node[row]] = value[row]


@kernel
def copy_spans(buffer: np.ndarray, begin: np.ndarray, length: np.ndarray, out: np.ndarray) -> None:
    """Put spans one after the other. O(bytes).

    Parameters
    ----------
    buffer, out
        uint8; ``out`` is as long as all spans together.
    begin, length
        int64, shape (spans,).
    """
    at = 0
    for span in range(begin.size):
        for i in range(length[span]):
            out[at + i] = buffer[begin[span] + i]
        at += length[span]
