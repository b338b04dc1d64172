"""Write host and device in one PyTorch execution trace, as Chakra's linker does.

A host trace is written as it was read. A linked trace gets what the linker adds: times on
host operations, and device work after the operation that launched it, with the inputs,
outputs and attributes of that operation. Chakra's converter reads the result.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import polars as pl

from nadi.files.files import line_pieces
from nadi.files.json_columns import joined, json_text, spread, texts_as_json, written_once
from nadi.trace.arrays import Bools, Ints
from nadi.trace.attributes import CODES, Attributes
from nadi.trace.categories import KINETO_CATEGORIES
from nadi.trace.issues import IssueLog
from nadi.trace.protobuf_values import VALUE_TYPES
from nadi.trace.rows import nearest
from nadi.trace.schema import ATTRIBUTE_TYPES, DEVICE_WORK
from nadi.trace.trace import Trace

_HOST = ("metadata", "annotation", "operator")
_DEVICE_NAMES = {own: name for name, own in KINETO_CATEGORIES.items() if own in DEVICE_WORK}
# one that all versions of Chakra's converter of the last years accept
_SCHEMA = "1.1.0-chakra.0.0.4"
# the oldest schema has its keys elsewhere; as they are written here is how this one has them
_OLD_SCHEMA, _SCHEMA_AS_WRITTEN = "1.0.1", "1.0.3-chakra.0.0.4"
_ATTRS_KEY, _OTHER_EVENTS, _DEVICE_KEY = "attrs", "event", "schemaVersion"
_CTRL = "ctrl_deps[0]"
_BEFORE_NODES = ("schema", "pid", "time", "start_ts")
_NO_OPERANDS = '{"values":[],"shapes":[],"types":[],"strides":[]}'
_USER_SCOPE = 7  # of PyTorch's RecordScope


def encode(trace: Trace, log: IssueLog) -> Iterator[bytes]:
    """Write a trace in the layout of Chakra's linker, "ET+".

    - ``trace``: A host trace, which is written as it was read, or a linked one. For a linked trace,
      runtime calls and Python functions are left out, and their time counts as that of the
      enclosing operation. If it has device work, nodes are renumbered, so that this work directly
      follows the operation that launched it.
    - ``log``: Collects what is not written.
    - Yields: The file, UTF-8, piece by piece; a line per node. O(bytes).
    """
    layout = _layout_of(trace)
    _note_what_is_left_out(trace, layout, log)
    before, after = _top_level(trace, layout)
    yield f'{{{before}"nodes": [\n'.encode()
    lines = _node_lines(trace, layout)
    comma = pl.when(pl.int_range(pl.len()) < pl.len() - 1).then(pl.lit(",")).otherwise(pl.lit(""))
    yield from line_pieces(lines.to_frame("line").select(pl.col("line") + comma).to_series())
    yield f"]{after}}}\n".encode()


@dataclass(frozen=True)
class _Layout:
    """The nodes to write, their order and their ids."""

    rows: Ints  # those written, in order
    id: Ints  # of every row of the trace; -1 where it is not written
    around: Ints  # the nearest row around each that is written; -1 if there is none
    is_device: Bools
    is_timed: Bools
    is_plain: bool  # a host trace as PyTorch wrote it


def _layout_of(trace: Trace) -> _Layout:
    is_device = trace.category_mask(*DEVICE_WORK)
    is_timed = trace.column("start") >= 0
    is_plain = not is_device.any() and not is_timed.any()
    is_host = trace.category_mask(*_HOST)
    kept = np.ones_like(is_host) if is_plain else is_host | is_device
    parent = trace.column("parent")
    around = nearest(parent, parent, is_host | is_plain)
    ids = trace.column("id")
    launcher = np.where(is_device, np.where(around >= 0, ids[around], 2**62), ids)
    rows = np.lexsort((trace.column("start"), is_device, launcher))
    rows = rows[kept[rows]]
    written = np.full(ids.size, -1, dtype=np.int64)
    written[rows] = np.arange(rows.size) if is_device.any() else ids[rows]
    return _Layout(rows, written, around, is_device, is_timed, is_plain)


def _note_what_is_left_out(trace: Trace, layout: _Layout, log: IssueLog) -> None:
    left_out = layout.id < 0
    log.add(
        "linked-json.node", "info", int(left_out.sum()),
        "nodes that are neither host operators nor device work, such as runtime calls and Python "
        "functions, are left out",
    )  # fmt: skip
    log.add(
        "linked-json.id", "info", layout.rows.size if layout.is_device.any() else 0,
        "nodes are renumbered, so that device work directly follows the operation that launched it",
    )  # fmt: skip
    schema = trace.attributes.of(-1).get("schema")
    log.add(
        "linked-json.schema", "info", int(schema == _OLD_SCHEMA),
        f"schema {_OLD_SCHEMA} becomes {_SCHEMA_AS_WRITTEN}, because the file has its keys",
    )  # fmt: skip
    kinds = trace.deps["kind"].is_in(["call", "launch", "thread"])
    log.add(
        "linked-json.dependency", "info", int((~kinds).sum()),
        "dependencies other than call, launch and thread are not written",
    )  # fmt: skip
    attributes = trace.attributes
    # a row for the trace itself, which is always written, comes first
    is_lost = np.append(False, left_out)[attributes.node.astype(np.int64) + 1]
    is_event = _named(attributes, {_OTHER_EVENTS}) & (attributes.node < 0)
    log.add(
        "linked-json.attribute", "info", int((is_lost | is_event).sum()),
        "attributes of left-out nodes, and events that are not operations, are not written",
    )  # fmt: skip


def _named(attributes: Attributes, names: set[str]) -> Bools:
    chosen = np.array([name in names for name in attributes.names], dtype=np.bool_)
    return chosen[attributes.name] if len(attributes) else np.zeros(0, dtype=np.bool_)


def _top_level(trace: Trace, layout: _Layout) -> tuple[str, str]:
    """Write the file's keys before and after ``nodes``."""
    attributes = trace.attributes
    stated: dict[str, str] = {}
    names = {attributes.names[attributes.name[row]] for row in attributes.rows_of(-1)}
    for row in attributes.rows_of(-1):
        name, type_name = attributes.names[attributes.name[row]], _type_of(attributes, row)
        # a device trace's own keys are JSON; they would make this file one of its kind
        kept = VALUE_TYPES if _DEVICE_KEY in names else (*VALUE_TYPES, "json")
        if name != _OTHER_EVENTS and type_name in kept:
            stated.setdefault(name, _json_of(attributes, row))
    if stated.get("schema") == json_text(_OLD_SCHEMA):
        stated["schema"] = json_text(_SCHEMA_AS_WRITTEN)
    if not layout.is_plain:
        for name, value in _what_the_converter_needs(trace).items():
            stated.setdefault(name, msgspec.json.encode(value).decode())
    before = [name for name in _BEFORE_NODES if name in stated]
    after = [name for name in stated if name not in before]
    return (
        "".join(f"{json_text(name)}: {stated[name]}, " for name in before),
        "".join(f", {json_text(name)}: {stated[name]}" for name in after),
    )


def _what_the_converter_needs(trace: Trace) -> dict[str, Any]:
    start, duration = trace.column("start"), trace.column("duration")
    timed = start >= 0
    first = int(start[timed].min(initial=2**62)) if timed.any() else 0
    last = int((start + np.maximum(duration, 0))[timed].max(initial=0))
    moment = datetime.fromtimestamp(first // 10**9, tz=UTC)
    return {
        "schema": _SCHEMA,
        "pid": max(trace.process, 0),
        "time": f"{moment:%Y-%m-%d %H:%M:%S}",
        "start_ts": first // 10**6,
        "finish_ts": last // 10**6,
    }


def _type_of(attributes: Attributes, row: int) -> str:
    return ATTRIBUTE_TYPES[int(attributes.type[row])]


def _json_of(attributes: Attributes, row: int) -> str:
    """Format an attribute's value; raw JSON unchanged."""
    if _type_of(attributes, row) == "json":
        return attributes.span(row).decode()
    return msgspec.json.encode(attributes.python_value(row)).decode("utf-8")


def _node_lines(trace: Trace, layout: _Layout) -> pl.Series:
    attributes, height = trace.attributes, trace.nodes.height
    # device work says what its launcher says
    said_by = np.where(layout.is_device & (layout.around >= 0), layout.around, np.arange(height))
    columns = pl.DataFrame(
        {
            "id": layout.id,
            "name": texts_as_json(trace.nodes["name"]),
            "ctrl_deps": _control(trace, layout),
            "inputs": _operands(attributes, "inputs", height, is_plain=layout.is_plain),
            "outputs": _operands(attributes, "outputs", height, is_plain=layout.is_plain),
            "attrs": _attribute_lists(trace, layout),
            "times": _times(trace, layout),
            "others": _other_keys(attributes, height),
        }
    ).with_columns(pl.col("inputs", "outputs", "attrs").gather(said_by))
    columns = _with_group_names(trace, layout, columns)
    head = pl.lit('{"id":') + pl.format('{},"name":{},"ctrl_deps":{}', "id", "name", "ctrl_deps")
    line = pl.concat_str(head, "inputs", "outputs", "attrs", "times", "others", pl.lit("}"))
    return columns.select(line).to_series().gather(layout.rows)


def _with_group_names(trace: Trace, layout: _Layout, columns: pl.DataFrame) -> pl.DataFrame:
    """Add the process group of device communication if its launcher does not state it."""
    group = trace.column("group").copy()
    has_name = np.zeros(trace.nodes.height + 1, dtype=np.bool_)  # the last: no row around
    has_name[trace.attributes.node[trace.attributes.rows_named("pg_name")]] = True
    has_name[-1] = False
    group[~layout.is_device | has_name[layout.around]] = -1
    if not (group >= 0).any():
        return columns
    names = [json_text(name) for name in trace.groups["name"].to_list()]
    entries = [f',{{"name":"pg_name","type":"string","value":{name}}}]' for name in names]
    entry = spread(
        group.size, np.flatnonzero(group >= 0), pl.Series(entries).gather(group[group >= 0])
    )
    attrs = pl.when(entry == "").then(pl.col("attrs"))
    return columns.with_columns(attrs.otherwise(pl.col("attrs").str.strip_suffix("]") + entry))


def _control(trace: Trace, layout: _Layout) -> Ints:
    """Return the id that each node names as its parent; the root names itself."""
    own = np.where(layout.around >= 0, layout.id[layout.around], layout.id)
    attributes = trace.attributes
    rows = attributes.rows_named(_CTRL)
    rows = rows[attributes.type[rows] == CODES["dependency"]]
    if layout.is_plain:
        own[attributes.node[rows]] = attributes.value[rows]
    return own


def _operands(attributes: Attributes, side: str, size: int, *, is_plain: bool) -> pl.Series:
    """Format a node's inputs or outputs, from the texts of the source file."""
    names = attributes.names
    is_operand = attributes.type == CODES["operand"]
    is_part = _named(attributes, {name for name in names if name.startswith(f"{side}.")})
    parts = np.flatnonzero(is_part & (is_operand | (attributes.type == CODES["json"])))
    whole = np.flatnonzero(is_operand & _named(attributes, {side}))
    keys = pl.Series([json_text(name.removeprefix(f"{side}.")) for name in names], dtype=pl.String)
    members = keys.gather(attributes.name[parts]) + pl.Series([":"]) + _raw_json(attributes, parts)
    written = pl.DataFrame(
        {
            "parts": joined(size, attributes.node[parts].astype(np.int64), members, "{", ",", "}"),
            "whole": spread(
                size, attributes.node[whole].astype(np.int64), _raw_json(attributes, whole)
            ),
        }
    )
    nothing = "" if is_plain else f',"{side}":{_NO_OPERANDS}'
    text = pl.concat_str("whole", "parts")
    return written.select(
        pl.when(text != "").then(pl.lit(f',"{side}":') + text).otherwise(pl.lit(nothing))
    ).to_series()


def _raw_json(attributes: Attributes, rows: Ints) -> pl.Series:
    return written_once(attributes, rows, lambda row: _checked_json(attributes.span(row)))


def _checked_json(content: bytes) -> str:
    """Return JSON unchanged, other text as a string, and empty text as an empty object."""
    if not content:
        return "{}"
    try:
        msgspec.json.decode(content)
    except (msgspec.MsgspecError, RecursionError):
        return json_text(content.decode(errors="replace"))
    return content.decode()


def _attribute_lists(trace: Trace, layout: _Layout) -> pl.Series:
    """Write the lists ``attrs``: each attribute with its name and type."""
    attributes, height = trace.attributes, trace.nodes.height
    is_whole = _named(attributes, {_ATTRS_KEY}) & (attributes.type == CODES["json"])
    texts = pl.repeat("", len(attributes), eager=True)
    names = pl.Series([json_text(name) for name in attributes.names], dtype=pl.String)
    for code in np.unique(attributes.type).tolist():
        rows = np.flatnonzero((attributes.type == code) & (attributes.node >= 0))
        if ATTRIBUTE_TYPES[code] == "json":
            rows = rows[is_whole[rows]]
            some = written_once(attributes, rows, lambda row: attributes.span(row).decode())
        elif ATTRIBUTE_TYPES[code] in VALUE_TYPES:
            values = written_once(attributes, rows, lambda row: _json_of(attributes, row))
            middle = pl.Series([f',"type":"{ATTRIBUTE_TYPES[code]}","value":'])
            name = names.gather(attributes.name[rows])
            some = pl.Series(['{"name":']) + name + middle + values + pl.Series(["}"])
        else:
            continue
        texts = texts.scatter(rows, some)
    rows = np.flatnonzero((texts != "").to_numpy())
    nodes = attributes.node[rows].astype(np.int64)
    lists = joined(height, nodes, texts.gather(rows), ',"attrs":[', ",", "]")
    if layout.is_plain:
        return lists
    made = _attributes_from_columns(trace)
    return pl.select(pl.when(lists != "").then(lists).otherwise(made)).to_series()


def _attributes_from_columns(trace: Trace) -> pl.Series:
    """Format the attributes that the converter requires of every node, from its columns."""
    is_annotation = pl.col("category") == "annotation"
    entries = (
        ("rf_id", "uint64", pl.col("rf_id").clip(0)),
        ("fw_parent", "uint64", pl.lit(0)),
        ("seq_id", "int64", pl.col("sequence")),
        ("scope", "uint64", pl.when(is_annotation).then(_USER_SCOPE).otherwise(0)),
        ("tid", "uint64", pl.col("thread").clip(0)),
        ("fw_tid", "uint64", pl.lit(0)),
        ("op_schema", "string", pl.lit('""')),
    )
    parts: list[pl.Expr] = [pl.lit(',"attrs":[')]
    for place, (name, type_name, value) in enumerate(entries):
        comma = "," if place else ""
        parts.append(pl.lit(f'{comma}{{"name":"{name}","type":"{type_name}","value":'))
        parts += [value.cast(pl.String), pl.lit("}")]
    return trace.nodes.select(pl.concat_str(*parts, pl.lit("]"))).to_series()


def _times(trace: Trace, layout: _Layout) -> pl.Series:
    """Format times in us, and for device work also category and stream."""
    categories = trace.nodes["category"].cast(pl.String)
    columns = pl.DataFrame(
        {
            "dur": _microseconds(trace.column("duration")),
            "own": _microseconds(_exclusive(trace, layout)),
            "ts": _microseconds(trace.column("start")),
            "other": _other_thread(trace, layout),
            "cat": categories.replace_strict(_DEVICE_NAMES, default=""),
            "stream": trace.column("stream"),
            "is_device": layout.is_device,
            "is_timed": layout.is_timed,
        }
    )
    of_any = pl.format(
        ',"inclusive_dur":{},"exclusive_dur":{},"ts":{},"inter_thread_dep":{}',
        "dur", "own", "ts", "other",
    )  # fmt: skip
    of_device = pl.format(',"cat":"{}","ph":"X","stream":{}', "cat", "stream")
    return columns.select(
        pl.when("is_timed").then(of_any).otherwise(pl.lit(""))
        + pl.when("is_device").then(of_device).otherwise(pl.lit(""))
    ).to_series()


def _exclusive(trace: Trace, layout: _Layout) -> Ints:
    """Return exclusive times; those of left-out nodes are added to the enclosing operation."""
    exclusive = np.maximum(trace.column("exclusive"), 0)
    thread = trace.column("thread")
    moved = np.flatnonzero((layout.id < 0) & (layout.around >= 0))
    moved = moved[thread[moved] == thread[layout.around[moved]]]
    total = exclusive.copy()
    np.add.at(total, layout.around[moved], exclusive[moved])
    return np.where(trace.column("exclusive") >= 0, total, trace.column("duration"))


def _microseconds(nanoseconds: Ints) -> pl.Series:
    """Write times in us with all their digits: a float64 would lose some of an absolute time."""
    known = np.maximum(nanoseconds, 0)
    whole, rest = pl.Series(known // 1000), pl.Series(known % 1000)
    return whole.cast(pl.String) + pl.Series(["."]) + rest.cast(pl.String).str.zfill(3)


def _other_thread(trace: Trace, layout: _Layout) -> pl.Series:
    """Format the operation of another thread on which a node depends, the last to end."""
    deps = trace.deps.filter(pl.col("kind") == "thread")
    src, dst = deps["src"].to_numpy(), deps["dst"].to_numpy()
    usable = (layout.id[src] >= 0) & (layout.id[dst] >= 0)
    src, dst = src[usable], dst[usable]
    end = trace.column("start") + trace.column("duration")
    order = np.argsort(end[src], kind="stable")
    out = np.full(trace.nodes.height, -1, dtype=np.int64)
    out[dst[order]] = layout.id[src[order]]
    ids = pl.Series(out)
    return pl.select(
        pl.when(ids >= 0).then(ids.cast(pl.String)).otherwise(pl.lit("null"))
    ).to_series()


def _other_keys(attributes: Attributes, size: int) -> pl.Series:
    """Format unknown keys of nodes unchanged."""
    elsewhere = {name for name in attributes.names if name.startswith(("inputs.", "outputs."))}
    is_key = (attributes.type == CODES["json"]) & ~_named(attributes, {_ATTRS_KEY, *elsewhere})
    rows = np.flatnonzero(is_key & (attributes.node >= 0))
    keys = pl.Series([f",{json_text(name)}:" for name in attributes.names], dtype=pl.String)
    values = written_once(attributes, rows, lambda row: attributes.span(row).decode())
    texts = keys.gather(attributes.name[rows]) + values
    return joined(size, attributes.node[rows].astype(np.int64), texts, "", "", "")
