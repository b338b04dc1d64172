"""Numbers among attributes, put where their nodes are."""

from __future__ import annotations

import numpy as np

from nadi.kernels._jit import kernel

__all__ = ["scatter_numbers"]


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
