"""Encode any trace as one JSON object of Chakra's messages.

Attributes are most of the output, so they are formatted a column at a time: every distinct name
and text is formatted once, then the parts of each node are joined.
"""

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from nadi.files.chakra.attribute_message_kernels import ROLES
from nadi.files.chakra.chakra_attributes import with_chakra_attributes
from nadi.files.chakra.et_encode import given_ids, start_and_duration, version_of
from nadi.files.chakra.json_messages import camel_case
from nadi.files.files import line_pieces
from nadi.files.json_columns import (
    float_text,
    joined,
    json_text,
    spread,
    texts_as_json,
    written_once,
)
from nadi.trace.arrays import Ints
from nadi.trace.attributes import CODES, SPAN_CODES, Attributes
from nadi.trace.issues import IssueLog
from nadi.trace.protobuf_values import LIST_TYPES, VALUE_TYPES, read_varint
from nadi.trace.schema import ATTRIBUTE_TYPES, NODE_KINDS
from nadi.trace.trace import Trace

_QUOTED = ("int64", "uint64", "sint64", "fixed64", "sfixed64")  # JSON's numbers have 53 bits
_TYPE_TAG = b"\x18"  # of the field that holds the type of a node
_UNSIGNED = ("uint64", "fixed64")
_KEYS = {name: camel_case(name if name in LIST_TYPES else f"{name}_val") for name in VALUE_TYPES}
_IS_ATTRIBUTE = np.array([name in (*VALUE_TYPES, "none") for name in ATTRIBUTE_TYPES])


def encode(trace: Trace, log: IssueLog) -> Iterator[bytes]:
    """Write a trace as ``{"globalMetadata": {...}, "nodes": [...]}``.

    Every message follows protobuf's mapping to JSON: keys in camel case, 64-bit numbers and
    NaN as strings, bytes in base64, defaults left out.

    - ``trace``: Any trace; if it was not read from a Chakra file, its columns become attributes
      first.
    - ``log``: Collects what is not written.
    - Yields: The file, UTF-8, piece by piece; a line per node. O(bytes).
    """
    from_chakra = version_of(trace) is not None
    if not from_chakra:
        trace = with_chakra_attributes(trace, log)
    attributes = trace.attributes
    kinds = _unknown_kinds(attributes)
    num_unknown = int((attributes.type == CODES["unknown"]).sum()) - len(kinds)
    log.add(
        "chakra-json.unknown", "warning", num_unknown,
        "protobuf fields are unknown to this version of the format and not written to JSON",
        "write an .et to keep them",
    )  # fmt: skip
    given = _attribute_objects(attributes, trace.nodes.height + 1)
    metadata = given.select(
        pl.concat_str(pl.lit("{"), pl.col("fields").str.strip_prefix(","), pl.lit("}"))
    )[0].item()
    yield f'{{"globalMetadata": {metadata}, "nodes": [\n'.encode()
    lines = _node_lines(trace, given[1:], kinds, from_chakra=from_chakra)
    comma = pl.when(pl.int_range(pl.len()) < pl.len() - 1).then(pl.lit(",")).otherwise(pl.lit(""))
    yield from line_pieces(lines.to_frame("line").select(pl.col("line") + comma).to_series())
    yield b"]}\n"


def _unknown_kinds(attributes: Attributes) -> dict[int, int]:
    """Return the node types that this version does not know, which are kept as fields."""
    kinds = {}
    for row in np.flatnonzero(attributes.type == CODES["unknown"]).tolist():
        content = attributes.span(row)
        if attributes.node[row] >= 0 and content[:1] == _TYPE_TAG:
            number = read_varint(content, 1)[0] % 2**32
            kinds[int(attributes.node[row])] = number - 2**32 if number >= 2**31 else number
    return kinds


def _node_lines(
    trace: Trace, given: pl.DataFrame, unknown_kinds: dict[int, int], *, from_chakra: bool
) -> pl.Series:
    nodes, parts = trace.nodes, trace.attribute_parts
    exact = "duration_ns" in trace.attributes.names  # which keeps what is written otherwise
    start, duration = start_and_duration(trace, exact=exact)
    ctrl, data = (
        given_ids(trace, parts, kind, from_chakra=from_chakra) for kind in ("ctrl", "data")
    )
    kinds = pl.Series([f'"{name}_NODE"' for name in NODE_KINDS])
    kind = kinds.gather(nodes["kind"].to_physical())
    # each field as JSON, and what stands for protobuf's default, which is left out
    columns = {
        "id": (_quoted(nodes["id"]), '"0"'),
        "name": (texts_as_json(nodes["name"]), '""'),
        "type": (kind.scatter(list(unknown_kinds), map(str, unknown_kinds.values())), kinds[0]),
        "ctrlDeps": (_id_lists(*ctrl), ""),
        "dataDeps": (_id_lists(*data), ""),
        "startTimeMicros": (_quoted(pl.Series(start)), '"0"'),
        "durationMicros": (_quoted(pl.Series(duration)), '"0"'),
    }
    written = [
        pl.when(pl.col(name) != default).then(pl.format(f',"{name}":{{}}', name))
        for name, (_, default) in columns.items()
    ]
    fields = pl.concat_str(*written, "fields", ignore_nulls=True).str.strip_prefix(",")
    frame = pl.DataFrame({name: column for name, (column, _) in columns.items()})
    return frame.with_columns(given).select(pl.lit("{") + fields + pl.lit("}")).to_series()


def _quoted(numbers: pl.Series) -> pl.Series:
    return pl.Series(['"']) + numbers.cast(pl.String) + pl.Series(['"'])


def _id_lists(first: Ints, ids: Ints) -> pl.Series:
    """Format the ids of each node as a list of strings; empty for a node without ids."""
    height = first.size - 1
    nodes = np.repeat(np.arange(height), np.diff(first))
    return joined(height, nodes, pl.Series(ids).cast(pl.String), '["', '","', '"]')


def _attribute_objects(attributes: Attributes, num_messages: int) -> pl.DataFrame:
    """Format the attributes of each message: the metadata, then every node.

    - Returns: ``fields``, text: members of the message's object, each after a comma.
    """
    is_attribute = _IS_ATTRIBUTE[attributes.type]
    has_comment = np.zeros(len(attributes), dtype=np.bool_)
    has_comment[:-1] = (
        (attributes.type[1:] == CODES["doc_string"])
        & is_attribute[:-1]
        & (attributes.node[1:] == attributes.node[:-1])
    )
    rows, comments = np.flatnonzero(is_attribute), np.flatnonzero(has_comment)
    names = pl.Series([json_text(name) for name in attributes.names], dtype=pl.String)
    texts = (
        pl.Series(['{"name":'])
        + names.gather(attributes.name[rows])
        + spread(len(attributes), comments, _values(attributes, comments + 1)).gather(rows)
        + _values(attributes, rows)
        + pl.Series(["}"])
    )
    of_message = attributes.node[rows].astype(np.int64) + 1
    listed = joined(num_messages, of_message, texts, ',"attr":[', ",", "]")
    others = [
        _operands(attributes, side, num_messages) for side in ("version", "inputs", "outputs")
    ]
    unknown = _unknown_keys(attributes, num_messages)
    parts = [*others, listed, unknown]
    return pl.DataFrame({str(place): part for place, part in enumerate(parts)}).select(
        fields=pl.concat_str(pl.all())
    )


def _values(attributes: Attributes, rows: Ints) -> pl.Series:
    """Format the member that holds the value of each of ``rows``, after a comma."""
    types = attributes.type[rows]
    places, texts = [np.zeros(0, dtype=np.int64)], [pl.Series([], dtype=pl.String)]
    for code in np.unique(types).tolist():
        chosen = np.flatnonzero(types == code)
        name = ATTRIBUTE_TYPES[code]
        key = "docString" if name == "doc_string" else _KEYS.get(name, "")
        if name == "none":
            values = pl.repeat("", chosen.size, eager=True)
        elif code in SPAN_CODES or name in ("double", "float"):
            values = _each_once(attributes, rows[chosen], name)
        else:
            values = _integers(attributes.value[rows[chosen]], name)
        if name != "none":
            values = pl.Series([f',"{key}":']) + values
        places.append(chosen)
        texts.append(values)
    return spread(rows.size, np.concatenate(places), pl.concat(texts))


def _integers(values: Ints, name: str) -> pl.Series:
    numbers = pl.Series(values.view(np.uint64) if name in _UNSIGNED else values)
    if name == "bool":
        return (numbers != 0).cast(pl.String)
    return _quoted(numbers) if name in _QUOTED else numbers.cast(pl.String)


def _json_value(name: str, value: Any) -> str:
    if name.endswith("_list"):
        item = name.removesuffix("_list")
        return f'{{"values":[{",".join(_json_value(item, entry) for entry in value)}]}}'
    if name in ("double", "float"):
        return float_text(value, single=name == "float")
    if name == "bytes":
        return f'"{base64.b64encode(value).decode()}"'
    return f'"{value}"' if name in _QUOTED else json_text(value)


def _each_once(attributes: Attributes, rows: Ints, name: str) -> pl.Series:
    return written_once(
        attributes, rows, lambda row: _json_value(name, attributes.python_value(row))
    )


def _operands(attributes: Attributes, side: str, num_messages: int) -> pl.Series:
    """Format inputs or outputs, and ``version``, which is a plain string."""
    keys = {name: name.removeprefix(side)[1:] for name in attributes.names if name in ROLES}
    is_of_side = [name in keys and name.startswith(side) for name in attributes.names]
    rows = np.flatnonzero(
        (attributes.type == CODES["operand"]) & np.array(is_of_side, dtype=bool)[attributes.name]
    )
    if not rows.size:
        return pl.repeat("", num_messages, eager=True)
    key = pl.Series([keys.get(name, "") for name in attributes.names], dtype=pl.String)
    members = pl.DataFrame(
        {
            "message": attributes.node[rows].astype(np.int64) + 1,
            "key": key.gather(attributes.name[rows]),
            "text": _each_once(attributes, rows, "operand"),
        }
    ).unique(["message", "key"], keep="first", maintain_order=True)
    if side == "version":
        members = members.filter((pl.col("text") != '""') & (pl.col("message") == 0))
        return joined(num_messages, members["message"].to_numpy(), members["text"], ',"version":')
    # an empty key marks operands without any text
    member = pl.when(pl.col("key") != "").then(pl.format('"{}":{}', "key", "text"))
    texts = members.select(member.alias("text")).to_series()
    return joined(num_messages, members["message"].to_numpy(), texts, f',"{side}":{{', ",", "}")


def _unknown_keys(attributes: Attributes, num_messages: int) -> pl.Series:
    """Format unknown keys as they were read."""
    rows = np.flatnonzero(attributes.type == CODES["json"])
    if not rows.size:
        return pl.repeat("", num_messages, eager=True)
    members = [
        f",{json_text(attributes.names[attributes.name[row]])}:{attributes.span(row).decode()}"
        for row in rows.tolist()
    ]
    messages = attributes.node[rows].astype(np.int64) + 1
    return joined(num_messages, messages, pl.Series(members), "", "")
