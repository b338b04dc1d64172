"""What an estimate is of, and what files state of it under keys of their own.

Load what an estimate needs: Nadi's descriptions by name or file, and Calculon's JSON files.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from msgspec import inspect

from nadi.errors import FormatError, Parameter, UsageError
from nadi.estimates.calculon.machine_description import MachineDescription
from nadi.estimates.described_systems import (
    checked_length,
    machine_of_system,
    model_of_language_model,
)
from nadi.estimates.estimated_model import ModelDescription
from nadi.estimates.execution import Execution
from nadi.files.files import read_settings
from nadi.files.settings_text import decode_json, parse_settings
from nadi.models.llm.language_model import language_model_from, load_language_model, read_model_keys
from nadi.systems.library import load_system, read_system_keys, system_file_from
from nadi.systems.system import System
from nadi.units import parse_rate

if TYPE_CHECKING:
    from nadi.estimates.calibration import Calibration

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
        """Give the same with another value of a key.

        The graphs of NCCL take as much more or less of a dimension's bandwidth.
        """
        told = with_key(self.told[owner], path, value)
        match tuple(path):
            case ("network", "dimensions", int() as number, "bandwidth"):
                told = _with_nccl(told, number, self.told[owner]["network"]["dimensions"], value)
        return self._replace(told={**self.told, owner: told})


def _with_nccl(told: Any, number: int, before: Sequence[Mapping[str, Any]], value: str) -> Any:
    """Give what a system file states with the graphs of NCCL on another bandwidth of a dimension.

    The first dimension is within a node; links of the others are those between nodes.
    """
    level = "nodes" if number else "node"
    graphs = told.get("nccl", {}).get(level)
    if not graphs or "bandwidth" not in before[number]:
        return told
    times = parse_rate(value) / parse_rate(before[number]["bandwidth"])
    links = ("bandwidth_inter",) if number else ("bandwidth_intra", "bandwidth_inter")

    def follows(graph: Any) -> Any:
        rates = {key: f"{parse_rate(graph[key]) * times} B/s" for key in links if graph.get(key)}
        return {**graph, **rates}

    found = {name: follows(one) if isinstance(one, dict) and "channels" in one else one
             for name, one in graphs.items()}  # fmt: skip
    return {**told, "nccl": {**told["nccl"], level: found}}


class FileKey(NamedTuple):
    """A key of a file."""

    path: tuple[str | int, ...]  # from the file's top: names, and numbers in lists
    like: bool | int | float | str | None  # a value of its type; None if it is no single value
    # of ``None`` in ``like`` or of an unknown key: where it stands, what is missing there, and what
    # there is
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


_Described = TypeVar("_Described", ModelDescription, MachineDescription, Execution)
_Plan = TypeVar("_Plan")
# keys by which Calculon's files are known
_OF_MODEL = frozenset({"feedforward", "seq_size", "attn_heads", "attn_size", "num_blocks"})
_OF_MACHINE = frozenset({"matrix", "vector", "mem1", "mem2", "networks", "processing_mode"})
_OF_EXECUTION = frozenset({"num_procs", "tensor_par", "pipeline_par", "batch_size", "datatype"})


def read_model(path_or_name: Path | str, sequence: int = 0) -> ModelDescription:
    """Read a model: a language model by name or file, or Calculon's application file.

    Parameters
    ----------
    sequence
        Tokens of a sequence; by default the model's.

    Raises
    ------
    InputError
        If it cannot be read, or breaks a rule; the message has the path in the file.
    UsageError
        If no model has this name, or nothing states the length of a sequence, or it is none.
    """
    if _is_of_calculon(path_or_name, _OF_MODEL):
        found = _read(Path(path_or_name), ModelDescription)
        return msgspec.structs.replace(found, seq_size=checked_length(sequence) or found.seq_size)
    return model_of_language_model(load_language_model(path_or_name), sequence)


def read_machine(
    path_or_name: Path | str, ranks: int = 0, tier: str = "",
    calibration: Calibration | None = None,
) -> MachineDescription:  # fmt: skip
    """Read a machine: a system by name or file, or Calculon's system file.

    Parameters
    ----------
    ranks
        How many there are, which a system's network depends on; by default those of a node.
    tier
        As for :func:`nadi.estimates.machine_of_system`; Calculon's file has one.
    calibration
        What was measured on it (:func:`read_calibration`).

    Raises
    ------
    InputError
        As for :func:`read_model`.
    UsageError
        If no system has this name, it does not fit so many ranks, or it does not state what
        an estimate needs.
    """
    if _is_of_calculon(path_or_name, _OF_MACHINE):
        if calibration is not None:
            raise UsageError(
                Parameter("calibrate"), f"{path_or_name} is a file of Calculon's, whose engines "
                "have no kernels", "describe the machine as a system (docs/systems.md)",
            )  # fmt: skip
        return _read(Path(path_or_name), MachineDescription)
    return _calibrated(load_system(path_or_name, ranks or None), tier, calibration)


def _calibrated(system: System, tier: str, calibration: Calibration | None) -> MachineDescription:
    """Describe a system with what was measured on it."""
    if calibration is None:
        return machine_of_system(system, tier)
    tables = calibration.measured or system.measured
    return machine_of_system(
        msgspec.structs.replace(system, measured=tables), tier, calibration.prices
    )


def read_language_keys(path_or_name: Path | str) -> dict[str, Any] | None:
    """Read what the file of a language model states; None if it is Calculon's.

    - Raises InputError, UsageError as for :func:`nadi.models.load_language_model`.
    """
    if _is_of_calculon(path_or_name, _OF_MODEL):
        return None
    keys = read_model_keys(path_or_name)
    language_model_from(keys, str(path_or_name))
    return dict(keys)


def read_machine_keys(path_or_name: Path | str) -> dict[str, Any] | None:
    """Read what the file of a system states; None if it is Calculon's.

    - Raises InputError, UsageError as for :func:`nadi.systems.read_system_file`.
    """
    if _is_of_calculon(path_or_name, _OF_MACHINE):
        return None
    keys = read_system_keys(path_or_name)
    system_file_from(keys, path_or_name)
    return dict(keys)


def machine_from_keys(
    keys: Mapping[str, Any], path_or_name: Path | str, ranks: int, tier: str = "",
    calibration: Calibration | None = None,
) -> MachineDescription:  # fmt: skip
    """Describe a machine by what a system's file states, or would.

    - ``keys``: As :func:`read_machine_keys` reads them.
    - ``path_or_name``: Of the file.
    - ``ranks``, ``tier``, ``calibration``: As for :func:`read_machine`.
    - Raises InputError, UsageError as for :func:`read_machine`.
    """
    return _calibrated(system_file_from(keys, path_or_name).fit(ranks or None), tier, calibration)


def read_execution(path: Path | str) -> Execution:
    """Read an execution: Calculon's execution file.

    Raises
    ------
    InputError
        As for :func:`read_model`.
    """
    return _read(Path(path), Execution)


def read_plan_fields(path: Path | str) -> dict[str, Any] | None:
    """Read the fields of a plan from a file; None if it is Calculon's execution.

    Raises
    ------
    InputError
        If it cannot be read, or is no table of fields.
    """
    if _is_of_calculon(path, _OF_EXECUTION):
        return None
    path = Path(path)
    found = parse_settings(read_settings(path, "check the path"), path.suffix, str(path), "plan")
    if not isinstance(found, dict):
        raise FormatError(str(path), "it is no table of fields", "such as tp = 8")
    return found


def system_and_plan(
    system: Path | str, plan: _Plan | Path | str
) -> tuple[Path | str, _Plan | Path | str]:
    """Return a system and a plan, where Calculon's order has them the other way round."""
    if (
        isinstance(plan, str | Path)
        and _is_of_calculon(system, _OF_EXECUTION)
        and _is_of_calculon(plan, _OF_MACHINE)
    ):
        return plan, system
    return system, plan


def _is_of_calculon(path_or_name: Path | str, keys: frozenset[str]) -> bool:
    """Tell whether a file is one of Calculon's: JSON with one of its keys, or no object."""
    path = Path(path_or_name)
    if path.suffix != ".json":
        return False
    try:
        found = decode_json(read_settings(path), dict[str, msgspec.Raw], str(path), "")
    except FormatError:
        return True  # and reading it says what is wrong
    return bool(keys & set(found))


def _read(path: Path, kind: type[_Described]) -> _Described:
    return decode_json(read_settings(path), kind, str(path), lambda what: _remedy(what, kind))


def _remedy(message: str, kind: type[_Described]) -> str:
    """Name what would fit."""
    unknown = re.search(r"unknown field `(.*?)`", message)
    fields = kind.__struct_fields__
    if unknown:
        near = difflib.get_close_matches(unknown[1], fields, n=1)
        return f"did you mean {near[0]}" if near else f"known: {', '.join(fields)}"
    what = {ModelDescription: "a model", MachineDescription: "a machine", Execution: "an execution"}
    return f"write {what[kind]} as docs/estimate.md shows it"
