"""Models and machines with a column in place of a number: as many as it has values.

A sweep varies numbers of a model or a machine. The core does the same with a number and with a
column of shape (executions,); what is here takes rows of such columns, wherever they stand.
"""

from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from nadi.trace.arrays import Bools, Floats, Ints

_Described = TypeVar("_Described")


def columns_in(*described: Any) -> list[npt.NDArray[Any]]:
    """Give the columns in models, machines or parts of them; none in what a file states."""
    found: list[npt.NDArray[Any]] = []
    for one in described:
        if isinstance(one, np.ndarray):
            found.append(one)
        elif isinstance(one, msgspec.Struct):
            found += columns_in(*(getattr(one, name) for name in one.__struct_fields__))
        elif isinstance(one, dict):
            found += columns_in(*one.values())
        elif isinstance(one, tuple):
            found += columns_in(*one)
    return found


def rows_of(described: _Described, rows: slice | Bools | Ints) -> _Described:
    """Give a model or a machine with some rows of its columns; the same if it has none."""
    return _taken(described, rows) if columns_in(described) else described


def as_floats(number: Any) -> Floats:
    """Give a number or a column as float64 of shape (1,) or (executions,)."""
    return np.atleast_1d(np.asarray(number, dtype=np.float64))


def _taken(one: Any, rows: Any) -> Any:
    if isinstance(one, np.ndarray):
        return one[rows]
    if isinstance(one, msgspec.Struct):
        old = {name: getattr(one, name) for name in one.__struct_fields__}
        changed = {name: _taken(value, rows) for name, value in old.items() if columns_in(value)}
        return msgspec.structs.replace(one, **changed) if changed else one
    if isinstance(one, dict):
        return {name: _taken(value, rows) for name, value in one.items()}
    if isinstance(one, tuple):
        return tuple(_taken(value, rows) for value in one)
    return one
