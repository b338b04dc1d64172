"""Communication of one rank, completed from the calls that issued it."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.files.communication_names import (
    comm_kind,
    comm_type_of_call,
    comm_type_of_host,
    is_told_by_call,
    ranks_of_host,
)
from nadi.files.pytorch.host_nodes import recorded_bytes
from nadi.files.pytorch.record_param_comms import C10D_CALLS, NODE_NAME, c10d_calls
from nadi.recordings.communication.process_groups import Members, group_of_each, with_default_group
from nadi.trace.arrays import Bools, Ints
from nadi.trace.collectives import FROM_ROOT, TO_ROOT
from nadi.trace.issues import IssueLog
from nadi.trace.rows import number_rows
from nadi.trace.schema import COMM_TYPES, NODE_KINDS
from nadi.trace.trace import Trace

_MAX_CLIMB = 16  # levels between a kernel's launch and the call that names its tensors
_CODE = {comm_type: code for code, comm_type in enumerate(COMM_TYPES)}
_KIND_OF_CODE = np.array([NODE_KINDS.index(comm_kind(name)) for name in COMM_TYPES])
_NONE, _OTHER = _CODE["none"], _CODE["other"]


class _Callers(NamedTuple):
    """The calls around each communication operation: rows of the linked trace, or -1.

    ``around`` has shape (levels, communications): the operation itself, its launch, what
    encloses that, and so on; the others have shape (communications,): the nearest
    ``record_param_comms``, annotation such as ``nccl:broadcast`` and ``c10d`` call.
    """

    around: Ints
    record: Ints
    label: Ints
    call: Ints


def communication(
    trace: Trace, host: Trace, host_row: Ints, parent: Ints, launcher: Ints, log: IssueLog
) -> tuple[dict[str, Ints], dict[str, Ints], pl.DataFrame]:
    """Complete the columns of communication operations from the calls that issued them.

    - ``trace``, ``host``: The linked trace, and the host trace behind it, which may be empty.
    - ``host_row``: int64, shape (nodes,): the host node that each node is, or -1.
    - ``parent``, ``launcher``: int64, shape (nodes,): rows of the linked trace, or -1.
    - ``log``: Records where sizes and groups come from.
    - Returns dict: New columns of the nodes by name: ``kind``, ``comm_type``, ``comm_bytes``,
      ``group``, ``src``, ``dst``, ``tag``, ``comms_id`` and ``is_async``, all or none.
    - and dict: Of those of words, what ``Trace.codes`` gives.
    - and polars.DataFrame: The groups that they refer to. O(communications + attributes of the host
      trace).
    """
    codes = trace.codes("comm_type").astype(np.int64)
    rows = np.flatnonzero(codes != _NONE)
    if rows.size == 0:
        return {}, {}, trace.groups
    callers = _callers(trace, rows, parent, launcher)
    of_host = _HostColumns(host, host_row)
    calls = _calls(host, of_host.rows(callers.call))
    types = _types(trace, rows, callers, of_host, codes[rows])
    columns = {
        "comm_bytes": _bytes(trace, rows, callers, of_host, calls["bytes"], log),
        "tag": _first_known(of_host.column("tag", callers.record), calls["tag"]),
        "is_async": _first_known(of_host.column("is_async", callers.record), calls["is_async"]),
    }
    ids = np.append(trace.column("comms_id"), -1)
    columns["comms_id"] = _first_known(ids[rows], ids[callers.record])
    groups = with_default_group(trace, rows, types)
    columns["group"] = group_of_each(
        trace, groups, rows, types, _recorded_groups(trace, groups, rows, callers, of_host), log
    )
    columns["src"], columns["dst"] = _ends(
        trace, rows, types, callers, of_host, calls, Members(groups["ranks"]), columns["group"]
    )
    _fuse_coalesced(trace, types, columns, callers, of_host)
    log.add(
        "link.comm-type-unknown", "info", int((types == _OTHER).sum()),
        "communication operations have an unknown type, or combine operations of several types",
    )  # fmt: skip
    codes = codes.copy()
    codes[rows] = types
    kinds = trace.codes("kind").astype(np.int64)
    kinds[rows] = _KIND_OF_CODE[types]
    completed = {name: _scattered(trace, name, rows, values) for name, values in columns.items()}
    of_words = {"comm_type": codes, "kind": kinds}
    return completed | of_words, of_words, groups


def _scattered(trace: Trace, name: str, rows: Ints, values: Ints) -> Ints:
    column = trace.column(name).copy()
    column[rows] = values
    return column


class _HostColumns:
    """Looks up columns of the host trace for nodes of the linked trace."""

    def __init__(self, host: Trace, host_row: Ints) -> None:
        self._host = host
        self._host_row = host_row

    def rows(self, nodes: Ints) -> Ints:
        """Return the host nodes of some nodes; -1 for node -1 and nodes without a host node."""
        return np.where(nodes >= 0, self._host_row[nodes], -1)

    def column(self, name: str, nodes: Ints) -> Ints:
        """Return a column of the host trace at some nodes; -1 where a node has no host node."""
        rows = self.rows(nodes)
        return np.append(self._host.column(name), -1)[rows]

    def types(self, nodes: Ints) -> Ints:
        """Return the codes of ``comm_type``; the code of ``none`` where a node has no host node."""
        codes = self._host.codes("comm_type").astype(np.int64)
        return np.append(codes, _NONE)[self.rows(nodes)]

    def states(self, name: str, nodes: Ints) -> Bools:
        """Return whether each node has an attribute of a name in the host trace."""
        if (self.rows(nodes) < 0).all():
            return np.zeros(nodes.size, dtype=np.bool_)  # reading attributes is slow
        attributes = self._host.attributes
        stated = attributes.node[attributes.rows_named(name)]
        return np.isin(self.rows(nodes), stated[stated >= 0])

    def group_names(self, nodes: Ints) -> list[str]:
        """Return the name of each node's process group in the host trace, or ""."""
        names = [*self._host.groups["name"], ""]
        return [names[group] for group in self.column("group", nodes).tolist()]


def _callers(trace: Trace, rows: Ints, parent: Ints, launcher: Ints) -> _Callers:
    """Climb from each communication operation to its launch and to the calls that enclose it."""
    levels = [rows, np.where(launcher[rows] >= 0, launcher[rows], parent[rows])]
    for _ in range(_MAX_CLIMB):
        levels.append(np.where(levels[-1] >= 0, parent[levels[-1]], -1))
    around = np.stack(levels)
    is_label = trace.category_mask("annotation")

    def nearest(tells: Callable[[str], bool], among: Bools | None = None) -> Ints:
        found = _tells(trace, around, tells)
        if among is not None:
            found &= among[around]
        level = found.argmax(axis=0)
        node = around[level, np.arange(rows.size)]
        return np.where(found.any(axis=0), node, -1)

    return _Callers(
        around=around,
        record=nearest(lambda name: name == NODE_NAME),
        label=nearest(_is_label, is_label),
        call=nearest(lambda name: name.startswith("c10d::")),
    )


def _is_label(name: str) -> bool:
    return comm_type_of_host(name) != "none" or _is_coalesced(name)


def _is_coalesced(name: str) -> bool:
    return name.endswith(":coalesced")


def _tells(trace: Trace, nodes: Ints, tells: Callable[[str], bool]) -> Bools:
    """Test the names of nodes with a predicate; False for node -1. Shape of ``nodes``."""
    return _of_names(trace, nodes, tells).astype(np.bool_) & (nodes >= 0)


def _numbers(trace: Trace, nodes: Ints, number_of: Callable[[str], int]) -> Ints:
    """Map the name of each node to a number; -1 for node -1. Shape (nodes,)."""
    return np.where(nodes >= 0, _of_names(trace, nodes, number_of), -1)


def _of_names(trace: Trace, nodes: Ints, value_of: Callable[[str], int]) -> Ints:
    """Ask for the value of each name once, and return those of nodes; any for node -1."""
    codes, texts = trace.name_codes
    asked = codes[np.maximum(nodes, 0)].ravel().astype(np.int64)
    at, first = number_rows([asked])
    values = np.array([value_of(texts[code]) for code in asked[first].tolist()], dtype=np.int64)
    return values[at].reshape(nodes.shape)


def _calls(host: Trace, host_rows: Ints) -> dict[str, Ints]:
    """Return the arguments of the ``c10d`` call of each communication, as ``c10d_calls`` does."""
    wanted, at = np.unique(host_rows, return_inverse=True)
    known = wanted[wanted >= 0]
    if known.size == 0:
        return {name: np.full(host_rows.size, -1, dtype=np.int64) for name in C10D_CALLS}
    table = c10d_calls(known, host.attributes)
    missing = [-1] * (wanted.size - known.size)
    return {
        name: np.concatenate([missing, column]).astype(np.int64)[at]
        for name, column in table.items()
    }


def _first_known(*columns: Ints) -> Ints:
    """Return the first of several columns that is not -1, row by row."""
    known = columns[0]
    for column in columns[1:]:
        known = np.where(known >= 0, known, column)
    return known


def _types(trace: Trace, rows: Ints, callers: _Callers, of_host: _HostColumns, named: Ints) -> Ints:
    """Find the type of each communication: from its name, or from its call if that is more exact.

    gloo runs some collectives as another one, and one kernel may serve several.
    """
    of_record = of_host.types(callers.record)
    of_label = _numbers(trace, callers.label, lambda name: _CODE[comm_type_of_host(name)])
    of_call = _numbers(trace, callers.call, lambda name: _CODE[comm_type_of_call(name)])
    of_label, of_call = np.maximum(of_label, _NONE), np.maximum(of_call, _NONE)
    on_host = trace.nodes["is_cpu"].to_numpy()[rows]
    by_call = _tells(trace, rows, is_told_by_call) | on_host | (named == _OTHER)
    is_barrier = (of_record == _CODE["barrier"]) | (of_call == _CODE["barrier"])
    inner = np.where(of_record != _NONE, of_record, np.where(on_host, _NONE, of_label))
    asked = np.where(on_host | (inner == _NONE), of_call, inner)
    asked = np.where(asked == _NONE, inner, asked)
    return np.where((by_call | is_barrier) & (asked != _NONE), asked, named)


def _bytes(
    trace: Trace,
    rows: Ints,
    callers: _Callers,
    of_host: _HostColumns,
    of_call: Ints,
    log: IssueLog,
) -> Ints:
    """Return the bytes sent: as recorded in either file, else the size of the nearest tensors."""
    of_device = np.append(trace.column("comm_bytes"), -1)
    stated = _first_known(of_device[rows], of_device[callers.record])
    of_record = of_host.column("comm_bytes", callers.record)
    in_host = of_host.states("in_msg_nelems", callers.record) & of_host.states(
        "dtype", callers.record
    )
    stated = _first_known(stated, np.where(in_host, of_record, -1))
    of_tensors = of_host.column("comm_bytes", callers.around)
    # a call counts the bytes of all its tensors, its results included
    of_tensors[callers.around == callers.call] = -1
    found = _first_known(stated, *of_tensors, of_call)
    left = np.flatnonzero((found < 0) & (callers.label >= 0))
    if left.size:  # without a host trace, the profiler may have noted the shapes
        found[left] = recorded_bytes(callers.label[left], trace.attributes)
    for code, severity, count, detail in (
        ("stated", "info", stated >= 0, "state their bytes"),
        ("tensors", "info", (stated < 0) & (found >= 0),
         "do not state their bytes, which are taken from the tensors of their calls"),
        ("unknown", "warning", found < 0, "do not state their bytes, and have no call that does"),
    ):  # fmt: skip
        log.add(f"link.comm-bytes-{code}", severity, int(count.sum()), f"communications {detail}")
    return found


def _recorded_groups(
    trace: Trace, groups: pl.DataFrame, rows: Ints, callers: _Callers, of_host: _HostColumns
) -> Ints:
    """Return the group that one of the files names, as a row of ``groups``; else -1."""
    of_device = np.append(trace.column("group"), -1)
    row_of_name = {name: row for row, name in enumerate(groups["name"])}
    names = of_host.group_names(callers.record)
    stated = np.array([row_of_name.get(name, -1) for name in names], dtype=np.int64)
    return _first_known(of_device[rows], of_device[callers.record], stated)


def _ends(
    trace: Trace,
    rows: Ints,
    types: Ints,
    callers: _Callers,
    of_host: _HostColumns,
    calls: dict[str, Ints],
    members: Members,
    group: Ints,
) -> tuple[Ints, Ints]:
    """Return the global ranks that send and receive: the root or peer, if an operation has one."""
    is_send, is_receive = types == _CODE["send"], types == _CODE["recv"]
    is_pair = is_send | is_receive
    own = np.where(is_pair, trace.rank, -1)
    has_source = is_pair | np.isin(types, [_CODE[name] for name in FROM_ROOT])
    has_target = is_pair | np.isin(types, [_CODE[name] for name in TO_ROOT])
    found = []
    for end, wanted in (("src", has_source), ("dst", has_target)):
        stated = np.append(trace.column(end), -1)
        side = ("src", "dst").index(end)
        named = _numbers(trace, callers.label, partial(_rank_named, side=side))
        counted = _first_known(np.where(is_pair, named, -1), calls[end], calls["root"])
        known = _first_known(
            stated[rows],
            stated[callers.record],
            of_host.column(end, callers.record),
            members.rank(group, counted),
        )
        found.append(np.where(wanted, known, -1))
    source = np.where(is_send, _first_known(own, found[0]), found[0])
    target = np.where(is_receive, _first_known(own, found[1]), found[1])
    return source, target


def _rank_named(name: str, side: int) -> int:
    return ranks_of_host(name)[side]


def _fuse_coalesced(
    trace: Trace,
    types: Ints,
    columns: dict[str, Ints],
    callers: _Callers,
    of_host: _HostColumns,
) -> None:
    """Describe work launched under ``nccl:coalesced`` by the calls before it.

    The second of two such launches of a thread runs all calls between the two. Its type is theirs
    if they agree, else ``other``; its peer is theirs if they agree, else unknown. Its bytes are
    the sum over all of them, without what is received.
    """
    fused = np.flatnonzero(_tells(trace, callers.label, _is_coalesced))
    if fused.size == 0:
        return
    thread = trace.column("thread")
    is_record = (trace.nodes["name"] == NODE_NAME).to_numpy()
    is_record[callers.record[callers.record >= 0]] = False  # this call ran its own work
    records = np.flatnonzero(is_record)
    records = records[of_host.types(records) != _NONE]
    ends = callers.label[fused]
    for one in np.unique(thread[ends]):
        mine = fused[thread[ends] == one]
        mine = mine[np.argsort(callers.label[mine], kind="stable")]
        asked = records[thread[records] == one]
        batch = np.searchsorted(callers.label[mine], asked)
        for number in np.unique(batch[batch < mine.size]).tolist():
            row, of_batch = mine[number], asked[batch == number]
            kinds = np.unique(of_host.types(of_batch))
            sizes = np.maximum(of_host.column("comm_bytes", of_batch), 0)
            sent = of_host.types(of_batch) != _CODE["recv"]
            columns["comm_bytes"][row] = sizes[sent].sum() if sent.any() else sizes.sum()
            types[row] = kinds[0] if kinds.size == 1 else _OTHER
            for end in ("src", "dst"):
                peers = np.unique(of_host.column(end, of_batch))
                columns[end][row] = peers[0] if kinds.size == peers.size == 1 else -1
            is_own = {_CODE["send"]: "src", _CODE["recv"]: "dst"}.get(int(types[row]))
            if is_own:
                columns[is_own][row] = trace.rank
