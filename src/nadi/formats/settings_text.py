"""Descriptions that users write in TOML, YAML or JSON, and their conversion to typed values."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from nadi.errors import FormatError, UsageError
from nadi.units import lowered

__all__ = ["SETTINGS_ENDINGS", "convert_settings", "parse_settings", "possible_types"]

_Value = TypeVar("_Value")
_STEP = re.compile(r"\.(\w+)|\[[^]]*\]")
_AT = re.compile(r"(.*?) - at `(.*)`", re.DOTALL)


def _read_toml(content: bytes) -> Any:
    return tomllib.loads(content.decode())


_READERS: dict[str, Callable[[bytes], Any]] = {
    ".toml": _read_toml,
    ".yaml": msgspec.yaml.decode,
    ".yml": msgspec.yaml.decode,
    ".json": msgspec.json.decode,
}
SETTINGS_ENDINGS = tuple(_READERS)


def parse_settings(content: bytes, suffix: str, name: str, what: str) -> Any:
    """Parse a text by its suffix, to dicts, lists and plain values.

    Parameters
    ----------
    suffix
        ``.toml``, ``.yaml``, ``.yml`` or ``.json``.
    name
        Of the file; errors begin with it.
    what
        What the file describes, such as ``system``, for the error about its suffix.

    Raises
    ------
    FormatError
        If it is not valid text of this kind.
    UsageError
        If it is YAML and PyYAML is not installed.
    """
    read = _READERS.get(suffix.lower())
    if read is None:
        raise FormatError(name, f"{suffix or 'no suffix'} is not a suffix of a {what} file",
                          f"use {', '.join(_READERS)}")  # fmt: skip
    try:
        return read(content)
    except RecursionError:
        raise FormatError(name, "it is nested too deeply", "simplify it") from None
    except (ValueError, TypeError, msgspec.DecodeError) as error:  # of many kinds: not only theirs
        syntax = lowered(str(error))
        remedy = f"correct the syntax: it is read as {suffix[1:]}"
        raise FormatError(name, syntax, remedy) from None
    except ImportError:
        raise UsageError(
            name, "YAML needs PyYAML", "pip install 'nadi[yaml]', or write TOML or JSON"
        ) from None


def convert_settings(
    value: Any, to: type[_Value], name: str, remedy: Callable[[str, str], str], place: str = "$"
) -> _Value:
    """Convert parsed settings to a struct.

    Parameters
    ----------
    remedy
        Gives the remedy for what is wrong, in words, at a JSON path within the value.
    place
        JSON path of the value in the file.

    Raises
    ------
    FormatError
        If a key is unknown or missing, or a value has another type; the message names its path.
    """
    try:
        return msgspec.convert(value, to)
    except RecursionError:
        raise FormatError(name, "it is nested too deeply", "simplify it") from None
    except msgspec.ValidationError as error:
        at = _AT.fullmatch(str(error))
        what, path = (at[1], at[2]) if at else (str(error), "$")
        what = lowered(what)
        raise FormatError(f"{name}: {place}{path[1:]}", what, remedy(what, path)) from None


def possible_types(root: type, path: str) -> list[inspect.Type]:
    """Return the valid types of the value at a JSON path of a struct."""
    found: list[inspect.Type] = [inspect.type_info(root)]
    for step in _STEP.finditer(path):
        inside: list[inspect.Type] = []
        for one in found:
            if isinstance(one, inspect.StructType):
                inside += [key.type for key in one.fields if key.encode_name == step[1]]
            elif isinstance(one, inspect.DictType):
                inside.append(one.value_type)
            elif isinstance(one, inspect.VarTupleType):
                inside.append(one.item_type)
        found = []
        for one in inside:
            found += one.types if isinstance(one, inspect.UnionType) else [one]
    return found
