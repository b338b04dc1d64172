"""Which operation of the host trace is which of the device trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nadi.errors import PairError
from nadi.trace import Trace
from nadi.units import format_count, format_percent

__all__ = ["MIN_EQUAL_NAMES", "Match", "match_operations"]

MIN_EQUAL_NAMES = 0.95
_KEYS = (("rf_id", "record function id"), ("external_id", "External id"))


@dataclass(frozen=True)
class Match:
    """How the operations of a pair correspond.

    Attributes
    ----------
    host_row
        int64, shape (device nodes,): the host node that is the same operation, or -1.
    key
        The id that they have in common.
    num_equal
        Operations found in both files under one id and one name.
    num_expected
        Operations with an id in the file that has fewer of them.
    """

    host_row: npt.NDArray[np.int64]
    key: str
    num_equal: int
    num_expected: int


def match_operations(host: Trace, device: Trace) -> Match:
    """Match by record function id, or by External id where the device trace has no such id.

    Raises
    ------
    PairError
        If fewer than 95 % of the operations have the same name: these two files are
        not recordings of the same run, or one of them uses other ids.
    """
    for column, key in _KEYS:
        match = _match_by(host, device, column, key)
        if match is not None:
            break
    else:
        raise PairError(
            _names(host, device),
            "no operation has an id in both files (record function id or External id)",
            "record both in one run, with the profiler and ExecutionTraceObserver on together",
        )
    if match.num_equal < MIN_EQUAL_NAMES * match.num_expected:
        raise PairError(
            _names(host, device),
            f"only {format_count(match.num_equal)} of {format_count(match.num_expected)} operations"
            f" ({format_percent(match.num_equal, match.num_expected)}) have the same {match.key}"
            f" and name in both; at least {MIN_EQUAL_NAMES:.0%} must",
            "give the host and the device trace of the same run",
        )
    return match


def _match_by(host: Trace, device: Trace, column: str, key: str) -> Match | None:
    host_ids = host.column("rf_id")
    device_ids = np.where(device.category_mask("operator", "annotation"), device.column(column), -1)
    with_id = np.flatnonzero(host_ids > 0)
    if with_id.size == 0 or not (device_ids > 0).any():
        return None
    by_id = with_id[np.argsort(host_ids[with_id], kind="stable")]
    at = np.minimum(np.searchsorted(host_ids[by_id], device_ids), by_id.size - 1)
    found = (host_ids[by_id[at]] == device_ids) & (device_ids > 0)
    host_row = np.where(found, by_id[at], -1)

    rows = np.flatnonzero(found)
    # an id may stand on several device events; each host operation is matched once
    _, first = np.unique(host_row[rows], return_index=True)
    repeated = np.ones(rows.size, dtype=np.bool_)
    repeated[first] = False
    host_row[rows[repeated]] = -1
    rows = rows[~repeated]

    host_names = host.nodes["name"].cast(str).gather(host_row[rows])
    device_names = device.nodes["name"].cast(str).gather(rows)
    equal = (host_names == device_names).to_numpy()
    host_row[rows[~equal]] = -1
    num_device = np.unique(device_ids[device_ids > 0]).size
    return Match(host_row, key, int(equal.sum()), min(with_id.size, num_device))


def _names(host: Trace, device: Trace) -> str:
    return f"{host.provenance.sources[0].path} with {device.provenance.sources[0].path}"
