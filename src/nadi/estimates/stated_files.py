"""What an estimate is of, and what files state of it under keys of their own."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from nadi.estimates.calculon.machine_description import MachineDescription
from nadi.estimates.estimated_model import ModelDescription
from nadi.estimates.execution import Execution

__all__ = ["Described", "FileKey", "StatedFiles", "file_key", "keys_of", "nearest_key", "with_key"]

_HIDDEN = {"name", "kernels", "about", "source", "compat", "published"}  # without effect, or unset
_NEW: dict[tuple[str | int, ...], dict[str, Any]] = {("memory", "remote"): {"kind": "per-rank"}}
_SINGLE = (inspect.StrType, inspect.IntType, inspect.FloatType, inspect.BoolType,
           inspect.LiteralType)  # fmt: skip


class Described(NamedTuple):
    """What an estimate is of.

    Attributes
    ----------
    model, machine, execution
        As the core takes them.
    files
        What Nadi's own files state of them; None where nothing but these values is known.
    """

    model: ModelDescription
    machine: MachineDescription
    execution: Execution
    files: StatedFiles | None = None


class StatedFiles(NamedTuple):
    """Files of Nadi's own, from which all is described anew when one of their keys changes.

    Attributes
    ----------
    told
        What they state, by ``model``, ``machine`` and ``execution``; one that is missing is
        described by its own fields.
    kinds
        The keys that each can have.
    describe
        Gives the same as it is told now.
    """

    told: Mapping[str, Mapping[str, Any]]
    kinds: Mapping[str, type[msgspec.Struct]]
    describe: Callable[[Described], Described]

    def with_value(self, owner: str, path: Sequence[str | int], value: Any) -> StatedFiles:
        """Give the same with another value of a key."""
        return self._replace(told={**self.told, owner: with_key(self.told[owner], path, value)})


class FileKey(NamedTuple):
    """A key of a file.

    Attributes
    ----------
    path
        From the file's top: names, and numbers in lists.
    like
        A value of its type; None if it is no single value.
    place
        Of ``None`` in ``like`` or of an unknown key: where it stands, what is missing there, and
        what there is.
    """

    path: tuple[str | int, ...]
    like: bool | int | float | str | None
    place: tuple[str, str, str] = ("", "", "")


def with_key(
    told: Any, path: Sequence[str | int], value: Any, at: tuple[str | int, ...] = ()
) -> Any:
    """Give what a file states with another value of a key; sections that are missing are made."""
    if not path:
        return value
    key, rest = path[0], path[1:]
    if isinstance(told, Sequence) and not isinstance(told, str):
        items = list(told)
        items[int(key)] = with_key(items[int(key)], rest, value, (*at, key))
        return items
    old: Mapping[Any, Any] = _NEW.get(at, {}) if told is None else told
    return {**old, key: with_key(old.get(key), rest, value, (*at, key))}


def file_key(kind: type[msgspec.Struct], told: Any, steps: Sequence[str]) -> FileKey | None:
    """Find a key by its path; None if the file cannot have its first part."""
    types: list[inspect.Type] = [inspect.type_info(kind)]
    path: list[str | int] = []
    for step in steps:
        keys = dict(_inside(types, told))
        if step not in keys:
            place = ".".join(map(str, path))
            return FileKey(tuple(path), None, (place, step, _listed(keys))) if path else None
        types = keys[step]
        is_list = not isinstance(told, Mapping) and told is not None
        path.append(int(step) if is_list else step)
        told = told[int(step)] if is_list else None if told is None else told.get(step)
    like = _like(types)
    if like is None:
        there = _listed(dict(_inside(types, told)))
        return FileKey(tuple(path), None, (".".join(steps), "", there))
    return FileKey(tuple(path), like)


def keys_of(kind: type[msgspec.Struct]) -> list[str]:
    """Give the keys at the top of a file."""
    return [key for key, _ in _inside([inspect.type_info(kind)], None)]


def nearest_key(files: StatedFiles, name: str) -> str:
    """Return the path that is most like a name; empty if none is."""
    paths = [
        path
        for owner, told in files.told.items()
        for path in _paths([inspect.type_info(files.kinds[owner])], told, "")
    ]
    found = difflib.get_close_matches(name, paths, n=1, cutoff=0.5)
    return found[0] if found else ""


def _inside(types: Sequence[inspect.Type], told: Any) -> Iterator[tuple[str, list[inspect.Type]]]:
    """Give the keys of a value, with the types of each."""
    for one in types:
        if isinstance(one, inspect.StructType):
            for field in one.fields:
                if field.encode_name not in _HIDDEN:
                    yield field.encode_name, _each(field.type)
        elif isinstance(one, inspect.DictType):
            for key in told or ():
                yield str(key), _each(one.value_type)
        elif isinstance(one, inspect.VarTupleType) and not isinstance(told, str):
            for number in range(len(told or ())):
                yield str(number), _each(one.item_type)


def _each(of: inspect.Type) -> list[inspect.Type]:
    return list(of.types) if isinstance(of, inspect.UnionType) else [of]


def _like(types: Sequence[inspect.Type]) -> bool | int | float | str | None:
    """Give a value of the type of a key that has a single value."""
    single = [one for one in types if isinstance(one, _SINGLE)]
    if any(isinstance(one, inspect.BoolType) for one in single):
        return True
    if any(isinstance(one, inspect.FloatType) for one in single):
        return 1.0
    if any(isinstance(one, inspect.IntType) for one in single):
        return 1
    if any(isinstance(one, inspect.LiteralType) and isinstance(one.values[0], int)
           for one in single):  # fmt: skip
        return 1
    return "" if single else None


def _paths(types: Sequence[inspect.Type], told: Any, before: str) -> Iterator[str]:
    """Give the paths of all keys with a single value."""
    for key, inner in _inside(types, told):
        if _like(inner) is not None:
            yield f"{before}{key}"
            continue
        value = told.get(key) if isinstance(told, Mapping) else told and told[int(key)]
        yield from _paths(inner, value, f"{before}{key}.")


def _listed(keys: Mapping[str, Any]) -> str:
    if not keys:
        return "it is a single value"
    if all(key.isdecimal() for key in keys):
        return f"numbers from 0 to {len(keys) - 1}"
    return f"known: {', '.join(keys)}"
