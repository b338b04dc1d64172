"""Operands and tensors of one set of texts, by the parsers of Python: slow and plain."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from typing import Any, NamedTuple

Tensor = tuple[Any, ...]
INTEGER = re.compile(r"-?[0-9]{1,18}")  # of a tensor; longer ones do not fit int64


class Leaf(NamedTuple):
    """One operand; its tensor as a tuple of the columns of a tensor, or None."""

    position: int
    item: int
    type: str
    tensor: Tensor | None
    value: str


def parse(text: str) -> Any:
    """Read JSON, or what ``str`` makes of a list; numbers stay as they are written."""
    try:
        return json.loads(text, parse_int=Number, parse_float=Number, parse_constant=Number)
    except ValueError:
        return _plain(ast.parse(text.strip(), mode="eval").body, text.strip().encode())


class Number(str):
    """The text of a number."""


def _plain(node: ast.expr, text: bytes) -> Any:
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_plain(item, text) for item in node.elts]
    if isinstance(node, ast.Constant) and (node.value is None or type(node.value) in (str, bool)):
        return node.value
    return Number(text[node.col_offset : node.end_col_offset].decode())  # all in one line


def leaves(values: str, shapes: str = "", types: str = "", strides: str = "") -> list[Leaf]:
    """Give the operands that four texts tell of."""
    found: list[Leaf] = []
    lists = [parse(text) if text else [] for text in (shapes, types, strides)]
    for position, value in enumerate(parse(values)):
        shape, type_name, stride = (_at(items, position) for items in lists)
        _walk(value, shape or [], type_name or "", stride or [], position, -1, found)
    return found


def _walk(
    value: Any, shape: Any, type_name: str, stride: Any, position: int, item: int,
    found: list[Leaf],
) -> None:  # fmt: skip
    def add(tensor: Tensor | None, text: str) -> None:
        number = item
        if item >= 0 and found and found[-1].position == position:
            number = found[-1].item + 1
        found.append(Leaf(position, number, type_name, tensor, text))

    if is_tensor(value) and not type_name.endswith("]"):
        add(
            (*map(int, value[:5]), value[5], dtype_of(type_name), _dims(shape),
             _dims(stride)), "",
        )  # fmt: skip
    elif isinstance(value, list):
        item = 0
        if not value:
            add(None, "[]")
        types = split(type_name)
        for number, child in enumerate(value):
            child_shape, child_stride = _at(shape, number) or [], _at(stride, number) or []
            _walk(child, child_shape, _at(types, number) or "", child_stride, position, item, found)
    elif isinstance(value, bool) or value is None:
        add(None, json.dumps(value))
    else:
        add(None, str(value))


def is_tensor(value: Any) -> bool:
    """Tell a tensor: five integers and a device."""
    return (
        isinstance(value, list)
        and len(value) == 6
        and type(value[5]) is str
        and all(type(n) is Number and INTEGER.fullmatch(n) for n in value[:5])
    )


@cache
def dtype_of(type_name: str) -> str:
    """Give what stands between the brackets of ``Tensor()``."""
    found = re.fullmatch(r"Tensor\((.+)\)", type_name)
    return found[1] if found else ""


@cache
def split(type_name: str) -> list[str]:
    """Give the types of the items of a list type: commas in brackets separate nothing."""
    if "[" not in type_name:
        return []
    parts, depth = [""], 0
    for c in type_name[type_name.index("[") + 1 : -1]:
        depth += (c in "[(") - (c in "])")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts]


def _at(items: Any, number: int) -> Any:
    return items[number] if isinstance(items, list) and number < len(items) else None


def _dims(dims: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in dims)
