"""Convert Chakra's messages from JSON with a kernel that handles the usual form of a node.

:class:`nadi.files.chakra.json_messages.MessageWriter`, which implements all rules, converts the
nodes that the kernel leaves, and everything that is not a node. If a file has a fault, this module
returns nothing: the slow reader then reports what is wrong and where.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from nadi.errors import FormatError
from nadi.files.chakra.json_messages import (
    FEEDER_ATTRIBUTES,
    MessageWriter,
    MisfitError,
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
    write_nodes,
)
from nadi.files.files import RawFile
from nadi.files.json_file import doubled, read_members, skip_blanks, value_end
from nadi.kernels.strings import make_words
from nadi.trace.arrays import Bytes
from nadi.trace.protobuf_values import TYPE_CODES
from nadi.trace.schema import NODE_KINDS

__all__ = ["FEEDER_WORDS", "METADATA_KEYS", "NODE_WORDS", "plain_messages"]

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
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def plain_messages(raw: RawFile, list_key: str | None, writer: MessageWriter) -> Bytes | None:
    """Return the messages of a file, one after the other.

    Parameters
    ----------
    list_key
        The key of the list of nodes in the file's one object: ``nodes``, or ``workload_graph``
        for the feeder; None if metadata and nodes are separate objects.
    writer
        Converts all other nodes, and collects values without a field.

    Returns
    -------
    ndarray
        uint8; None if the file has any fault. O(bytes).
    """
    try:
        if list_key is None:
            return _of_objects(raw, writer)
        return _of_one_object(raw, list_key, writer)
    except (FormatError, MisfitError, msgspec.MsgspecError, RecursionError):
        return None


def _of_objects(raw: RawFile, writer: MessageWriter) -> Bytes:
    """Return the messages of a sequence of objects."""
    begin = skip_blanks(raw.content, 0)
    end = value_end(raw, begin)
    metadata = _decode_object(raw.content[begin:end].tobytes())
    if "id" in metadata:
        raise MisfitError(".id", "no metadata")
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
            raise MisfitError(f".{key}", "the key occurs twice")
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
                raise MisfitError("", "expected a list")
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
                raise MisfitError("", "expected a node")
