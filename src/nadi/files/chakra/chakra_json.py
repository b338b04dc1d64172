"""Chakra's traces as JSON, in three shapes.

Chakra's jsonizer writes one object after the other: the metadata, then every node.  Nadi
writes one object, ``{"globalMetadata": ..., "nodes": [...]}``.  Both follow protobuf's mapping
to JSON.  Chakra's feeder reads a third shape with other keys:
``{"workload_graph": [{"Id": 1, "Name": ..., ...}, ...]}``.

Convert Chakra's messages from JSON with a kernel that handles the usual form of a node.

:class:`nadi.files.chakra.json_messages.MessageWriter`, which implements all rules, converts the
nodes that the kernel leaves, and everything that is not a node. If a file has a fault, this module
returns nothing: the slow reader then reports what is wrong and where.
"""

import itertools
import re
from collections.abc import Callable

import msgspec
import numpy as np

from nadi.errors import FormatError
from nadi.files.chakra.chakra_json_encode import encode as encode
from nadi.files.chakra.et_decode import trace_of_messages
from nadi.files.chakra.json_messages import (
    FEEDER_ATTRIBUTES,
    JsonMisfitError,
    MessageWriter,
    RawMessage,
    both_names,
)
from nadi.files.chakra.plain_json_kernels import (
    ALL_READ,
    FIRST_OF_FEEDER,
    LEFT,
    NO_ROOM,
    STATE,
    NodeWords,
    find_objects,
    write_nodes,
)
from nadi.files.files import RawFile, garbage_collection_paused
from nadi.files.json_file import doubled, read_members, skip_blanks, value_end
from nadi.kernels.strings import make_words
from nadi.trace.arrays import Bytes
from nadi.trace.issues import IssueLog
from nadi.trace.protobuf_values import TYPE_CODES
from nadi.trace.schema import NODE_KINDS
from nadi.trace.trace import Trace

METADATA_KEYS = ("globalMetadata", "global_metadata")
_LEAST_ROOM = 1 << 12
# those that the kernel writes, and Chakra's programs too
_TYPES = ("int32", "int64", "uint32", "uint64", "bool", "string")
_FIELDS = both_names(
    {"name": 1, "doc_string": 2}
    | {f"{name}_val": TYPE_CODES[name] for name in _TYPES}
    | {f"{name}_list": TYPE_CODES[f"{name}_list"] for name in _TYPES}
)
NODE_WORDS = NodeWords(
    node=make_words(
        both_names({
            "id": 1, "name": 2, "type": 3, "ctrl_deps": 4, "data_deps": 5, "start_time_micros": 6,
            "duration_micros": 7, "inputs": 8, "outputs": 9, "attr": 10,
        })
    ),
    attribute=make_words(_FIELDS),
    operands=make_words({"values": 1, "shapes": 2, "types": 3}),
    kinds=make_words({f"{name}_NODE": number for number, name in enumerate(NODE_KINDS)}),
    types=np.array([TYPE_CODES[name] for name in FEEDER_ATTRIBUTES.values()], dtype=np.int64),
)  # fmt: skip
FEEDER_WORDS = NODE_WORDS._replace(
    node=make_words(
        {"Id": 1, "Name": 2, "NodeType": 3, "data_deps": 5, "runtime": 7}
        | {key: FIRST_OF_FEEDER + place for place, key in enumerate(FEEDER_ATTRIBUTES)}
    )
)


def plain_messages(raw: RawFile, list_key: str | None, writer: MessageWriter) -> Bytes | None:
    """Return the messages of a file, one after the other.

    - ``list_key``: The key of the list of nodes in the file's one object: ``nodes``, or
      ``workload_graph`` for the feeder; None if metadata and nodes are separate objects.
    - ``writer``: Converts all other nodes, and collects values without a field.
    - Returns: uint8; None if the file has any fault. O(bytes).
    """
    try:
        if list_key is None:
            return _of_objects(raw, writer)
        return _of_one_object(raw, list_key, writer)
    except (FormatError, JsonMisfitError, msgspec.MsgspecError, RecursionError):
        return None


def _of_objects(raw: RawFile, writer: MessageWriter) -> Bytes:
    """Return the messages of a sequence of objects."""
    begin = skip_blanks(raw.content, 0)
    end = value_end(raw, begin)
    metadata = _decode_object(raw.content[begin:end].tobytes())
    if "id" in metadata:
        raise JsonMisfitError(".id", "no metadata")
    messages = _Messages(raw, NODE_WORDS, writer.node)
    messages.add(writer.metadata(metadata))
    messages.read(end, in_list=False)
    return messages.content()


def _of_one_object(raw: RawFile, list_key: str, writer: MessageWriter) -> Bytes:
    """Return the messages of one object: its list of nodes, and its other members."""
    is_feeder = list_key != "nodes"
    messages = _Messages(
        raw,
        FEEDER_WORDS if is_feeder else NODE_WORDS,
        writer.feeder_node if is_feeder else writer.node,
    )
    if is_feeder:
        messages.add(writer.metadata({}))
    metadata: dict[str, msgspec.Raw] = {}
    seen: set[str] = set()

    def read(key: str, begin: int) -> int:
        is_metadata = key in METADATA_KEYS and not is_feeder
        field = METADATA_KEYS[0] if is_metadata else key
        if field in seen:
            raise JsonMisfitError(f".{key}", "the key occurs twice")
        seen.add(field)
        if key == list_key:
            return messages.read(begin, in_list=True)
        end = value_end(raw, begin)
        value = raw.content[begin:end].tobytes()
        if is_metadata:
            metadata.update(_decode_object(value))
            # it comes first, but what it has no field for is kept last: the writer gets it again
            messages.add(MessageWriter().metadata(metadata))
        else:
            writer.keep(key, msgspec.Raw(value))
        return end

    read_members(raw, read)
    if not is_feeder:
        writer.metadata(metadata)
    return messages.content()


class _Messages:
    """Messages, concatenated in an array."""

    def __init__(
        self, raw: RawFile, words: NodeWords, write_node: Callable[[int, RawMessage], bytes]
    ) -> None:
        self._raw = raw
        self._words = words
        self._write_node = write_node
        # a message is smaller than its JSON nearly always, and untouched memory costs nothing
        self._out = np.empty(raw.content.size + _LEAST_ROOM, dtype=np.uint8)
        self._state = np.zeros(len(STATE), dtype=np.int64)

    def content(self) -> Bytes:
        """Return the bytes of all messages."""
        return self._out[: self._size]

    @property
    def _size(self) -> int:
        return int(self._state[STATE["size"]])

    def add(self, message: bytes) -> None:
        """Append a message."""
        size = self._size
        while size + len(message) > self._out.size:
            self._out = doubled(self._out)
        self._out[size : size + len(message)] = np.frombuffer(message, dtype=np.uint8)
        self._state[STATE["size"]] += len(message)

    def read(self, at: int, *, in_list: bool) -> int:
        """Append the messages of the nodes from ``at`` on; returns the byte after them.

        Raises
        ------
        FormatError, MisfitError, MsgspecError
            If a node has a fault, or the list contains something else.
        """
        text = self._raw.content
        if in_list:
            if text[at] != ord("["):
                raise JsonMisfitError("", "expected a list")
            at += 1
        is_first = True
        while True:
            reason, at = write_nodes(
                text, at, in_list, is_first, self._words, self._out, self._state
            )
            if reason == NO_ROOM:
                self._out = doubled(self._out)
                is_first = True  # there is no comma before the node
            elif reason == LEFT:
                end = value_end(self._raw, at)
                node = _decode_object(text[at:end].tobytes())
                self.add(self._write_node(int(self._state[STATE["nodes"]]), node))
                self._state[STATE["nodes"]] += 1
                at, is_first = end, False
            elif reason == ALL_READ:
                return at + in_list
            else:
                raise JsonMisfitError("", "expected a node")


JSONIZED = "Chakra JSON, object by object"
ONE_OBJECT = "Chakra JSON"
FEEDER = "Chakra feeder JSON"

_LIST_KEYS = {JSONIZED: None, ONE_OBJECT: "nodes", FEEDER: "workload_graph"}
_BEGIN = rb"(?:\xef\xbb\xbf)?\s*\{\s*"
_METADATA_ONLY = rb"\s*\}\s*(?:\{|\Z)"
_FIRST_KEYS = (
    (ONE_OBJECT, re.compile(_BEGIN + rb'"(?:globalMetadata|global_metadata)"\s*:')),
    (JSONIZED, re.compile(_BEGIN + rb'"attr"\s*:\s*\[\s*\{')),
    (
        JSONIZED,
        re.compile(
            _BEGIN
            + rb'(?:"version"\s*:\s*"(?:[^"\\]|\\.)*+"(?:\s*,\s*"attr"\s*:|'
            + _METADATA_ONLY
            + rb")|\}\s*\{)"
        ),
    ),
    (FEEDER, re.compile(_BEGIN + rb'(?:.*?[,{\s])??"workload_graph"\s*:', re.DOTALL)),
)
_HALF_CHARACTER = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")
_REMEDY = "the file is damaged, or not a Chakra trace: write it again"
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_objects = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode


def json_shape_of(head: bytes | memoryview) -> str | None:
    """Return which of the three shapes a file's first bytes have; None for another file."""
    return next((shape for shape, begin in _FIRST_KEYS if begin.match(head)), None)


def looks_like(head: bytes) -> bool:
    """Return whether a file's first bytes are those of a Chakra trace as JSON."""
    return json_shape_of(head) is not None


def decode(raw: RawFile) -> Trace:
    """Read a Chakra trace of any of the three shapes.

    - Returns: The same as :func:`nadi.files.chakra.et_decode.decode` of an .et with these messages.
      Keys without a field in the messages become attributes of type json. O(bytes).
    - Raises FormatError if the JSON is broken, or a value has the wrong type; the error states the
      JSON path.
    """
    shape = json_shape_of(raw.content.data)
    writer = MessageWriter()
    with garbage_collection_paused():
        messages = plain_messages(raw, _LIST_KEYS[shape], writer) if shape else None
        if shape is None or messages is None:
            writer = MessageWriter()
            shape, messages = _read_slowly(raw, writer)
    log = IssueLog()
    log.add(
        "chakra-json.unknown-key", "warning", writer.num_unknown,
        "keys have no field in Chakra's messages", "they are kept as attributes",
    )  # fmt: skip
    return trace_of_messages(raw, messages, shape, writer.beside.build(), log)


def _read_slowly(raw: RawFile, writer: MessageWriter) -> tuple[str, Bytes]:
    """Return a file's shape and its messages, written one by one; raise FormatError if broken."""
    content = raw.content.tobytes()
    try:
        content.decode()
    except UnicodeDecodeError as error:
        raise FormatError(raw.name, f"not valid UTF-8: byte {error.start:,}", _REMEDY) from None
    shape = json_shape_of(content)
    if shape is None:
        raise FormatError(
            raw.name,
            'not a Chakra trace: it begins neither with "globalMetadata" nor with metadata and a '
            'node, and has no "workload_graph"',
            "use the JSON that chakra_jsonizer or nadi wrote",
        )
    messages = _READERS[shape](raw, content, writer)
    return shape, np.frombuffer(bytearray().join(messages), dtype=np.uint8)


def _read_jsonized(raw: RawFile, content: bytes, writer: MessageWriter) -> list[bytes]:
    """Read a sequence of objects: the metadata, then every node."""
    ends = np.empty(content.count(b"{"), dtype=np.int64)
    count = find_objects(raw.content, ends)
    places = [0, *ends[:count].tolist()]
    if content[places[-1] :].strip():
        places.append(len(content))
    messages = []
    for row, (begin, end) in enumerate(itertools.pairwise(places), start=-1):
        message = _parsed(raw.name, content[begin:end], begin)
        if row < 0 and "id" in message:
            raise FormatError(raw.name, "it begins with a node; the metadata is missing", _REMEDY)
        messages.append(_written(raw.name, writer, row, f"$[{row + 1}]", message))
    return messages


def _read_one_object(raw: RawFile, content: bytes, writer: MessageWriter) -> list[bytes]:
    """Read one object with a list of all nodes."""
    whole = _parsed(raw.name, content, 0)
    messages = [b""]
    metadata: RawMessage = {}
    for key, value in whole.items():
        if key in METADATA_KEYS:
            metadata = _parsed(raw.name, bytes(value), 0, "$.globalMetadata")
        elif key == "nodes":
            for row, node in enumerate(_all_parsed(raw.name, value, "$.nodes")):
                messages.append(_written(raw.name, writer, row, f"$.nodes[{row}]", node))
        else:
            writer.keep(key, value)
    messages[0] = _written(raw.name, writer, -1, "$.globalMetadata", metadata)
    return messages


def _read_feeder(raw: RawFile, content: bytes, writer: MessageWriter) -> list[bytes]:
    """Read the shape of Chakra's feeder."""
    messages = [writer.metadata({})]
    for key, value in _parsed(raw.name, content, 0).items():
        if key != "workload_graph":
            writer.keep(key, value)
            continue
        for row, node in enumerate(_all_parsed(raw.name, value, "$.workload_graph")):
            place = f"$.workload_graph[{row}]"
            messages.append(_written(raw.name, writer, row, place, node, feeder=True))
    return messages


_READERS = {JSONIZED: _read_jsonized, ONE_OBJECT: _read_one_object, FEEDER: _read_feeder}


def _parsed(file: str, content: bytes, begin: int, place: str = "$") -> RawMessage:
    try:
        return _decode_object(content)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _broken(file, error, begin, content, place) from None


def _all_parsed(file: str, value: msgspec.Raw, place: str) -> list[dict[str, msgspec.Raw]]:
    try:
        return _decode_objects(value)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _broken(file, error, 0, bytes(value), place) from None


def _broken(file: str, error: Exception, begin: int, content: bytes, place: str) -> FormatError:
    """Return the error for what msgspec found, with the byte counted from the start of the file."""
    text = str(error)
    if isinstance(error, RecursionError):
        text = f"nested too deeply to be a trace - at {place}"
    elif isinstance(error, msgspec.ValidationError):
        text = text.replace("`$", f"`{place}") if "`$" in text else f"{text} - at `{place}`"
    elif "truncated" in text and (half := _HALF_CHARACTER.search(content)):
        # what msgspec says of it, too
        text = f"not valid JSON: incomplete surrogate pair (byte {begin + half.start():,})"
    elif "truncated" in text:
        text = f"the JSON ends too early, after {begin + len(content):,} bytes"
    elif found := re.search(r"\(byte (\d+)\)", text):
        text = f"{text[: found.start()]}(byte {begin + int(found[1]):,})"
    return FormatError(file, text, _REMEDY)


def _written(
    file: str,
    writer: MessageWriter,
    row: int,
    place: str,
    message: RawMessage,
    *,
    feeder: bool = False,
) -> bytes:
    try:
        if row < 0:
            return writer.metadata(message)
        return writer.feeder_node(row, message) if feeder else writer.node(row, message)
    except JsonMisfitError as error:
        node = message.get("Id" if feeder else "id")
        whose = f" (node {bytes(node).decode()[:24]})" if node is not None and row >= 0 else ""
        what = f"{error.what} - at {place}{error.path}{whose}"
        raise FormatError(file, what, _REMEDY) from None
