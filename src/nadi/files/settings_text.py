"""Descriptions that users write in TOML, YAML or JSON, and their conversion to typed values."""

import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from nadi.errors import FormatError, UsageError
from nadi.units import lowered

_Value = TypeVar("_Value")
_STEP = re.compile(r"\.(\w+)|\[[^]]*\]")
_AT = re.compile(r"(.*?) - at `(.*)`", re.DOTALL)
_MOST_WRITTEN = 1 << 22  # bytes of TOML and YAML, whose readers are slow
_MOST_VALUES = 1 << 20  # of YAML, with those that aliases repeat
_DEEPEST = 100  # values within values in YAML, and parts of a key in TOML
# tried at the beginning of a part only, and nothing twice: the time grows as the text does
_DEEP_KEY = re.compile(rb"(?<![^\s.=,])(?:[^\s.=,]++[ \t]*+\.[ \t]*+){%d}" % _DEEPEST)


def _read_toml(content: bytes) -> Any:
    _check_written(content)
    if _DEEP_KEY.search(content):  # whose tables tomllib makes in square time
        raise RecursionError
    return tomllib.loads(content.decode())


def _read_yaml(content: bytes) -> Any:
    import yaml  # type: ignore[import-untyped]

    _check_written(content)
    try:
        _check_yaml(yaml.parse(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.YAMLError as error:
        if "nesting depth" in str(error):  # from 6.0.4 on it has a limit of its own
            raise RecursionError from None
        raise ValueError(str(error)) from None
    return msgspec.yaml.decode(content)


def _check_written(content: bytes) -> None:
    if len(content) > _MOST_WRITTEN:
        raise ValueError(f"it has over {_MOST_WRITTEN >> 20} MiB")


def _check_yaml(events: Iterable[Any]) -> None:
    """Refuse YAML that is nested deeply, or becomes large by aliases, before it is built.

    Building is recursive, in compiled code too, which ends the process when it has no stack left.
    """
    number = 0
    starts: list[tuple[str | None, int]] = []
    sizes: dict[str, int] = {}
    for event in events:
        kind = type(event).__name__
        if kind == "AliasEvent":
            number += sizes.get(event.anchor, 0)
        elif kind.endswith("StartEvent") or kind == "ScalarEvent":
            number += 1
        if kind in ("MappingStartEvent", "SequenceStartEvent"):
            starts.append((event.anchor, number))
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            anchor, before = starts.pop()
            if anchor:
                sizes[anchor] = number - before + 1
        if len(starts) > _DEEPEST:
            raise RecursionError
        if number > _MOST_VALUES:
            raise ValueError(f"it has over {_MOST_VALUES:,} values, with those that aliases repeat")


_READERS: dict[str, Callable[[bytes], Any]] = {
    ".toml": _read_toml,
    ".yaml": _read_yaml,
    ".yml": _read_yaml,
    ".json": msgspec.json.decode,
}
SETTINGS_ENDINGS = tuple(_READERS)


def parse_settings(content: bytes, suffix: str, name: str, what: str) -> Any:
    """Parse a text by its suffix, to dicts, lists and plain values.

    - ``suffix``: ``.toml``, ``.yaml``, ``.yml`` or ``.json``.
    - ``name``: Of the file; errors begin with it.
    - ``what``: What the file describes, such as ``system``, for the error about its suffix.
    - Raises FormatError if it is not valid text of this kind.
    - Raises UsageError if it is YAML and PyYAML is not installed.
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


def decode_json(
    content: bytes, to: type[_Value], name: str, remedy: str | Callable[[str], str], part: str = ""
) -> _Value:
    """Decode JSON that a file holds to a typed value.

    - ``name``: Of the file; errors begin with it.
    - ``remedy``: What to do about an error, or a function that tells it from the error's text.
    - ``part``: Which part of the file it is, for errors.
    - Raises FormatError if it is not valid JSON, nested too deeply, or of another type; the message
      has the path.
    """
    try:
        return msgspec.json.decode(content, type=to)
    except RecursionError:
        what = "it is nested too deeply"
    except msgspec.ValidationError as error:
        what = lowered(str(error))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:  # the latter within keys
        what = lowered(str(error))
        if not part and "JSON" not in what:
            what = f"is not JSON: {what}"
    told = remedy if isinstance(remedy, str) else remedy(what)
    raise FormatError(name, f"{part}: {what}" if part else what, told)


def convert_settings(
    value: Any, to: type[_Value], name: str, remedy: Callable[[str, str], str], place: str = "$"
) -> _Value:
    """Convert parsed settings to a struct.

    - ``remedy``: Gives the remedy for what is wrong, in words, at a JSON path within the value.
    - ``place``: JSON path of the value in the file.
    - Raises FormatError if a key is unknown or missing, or a value has another type; the message
      names its path.
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


def remedy_for(root: type, what: str, path: str, shipped: str, more: Sequence[str] = ()) -> str:
    """Return the remedy for an invalid value at a path of a file.

    - ``shipped``: A folder of Nadi with files of this kind.
    - ``more``: Keys that the struct does not have.
    """
    possible = possible_types(root, path)
    if "unknown field" in what:
        structs = [one for one in possible if isinstance(one, inspect.StructType)]
        keys = [key.encode_name for one in structs for key in one.fields]
        return f"known keys: {', '.join([*keys, *more])}"
    words = [str(w) for one in possible if isinstance(one, inspect.LiteralType) for w in one.values]
    if words:
        return f"expected one of: {', '.join(words)}"
    if "missing required field" in what:
        return "state it"
    return f"a file shipped with Nadi shows all keys ({shipped})"
