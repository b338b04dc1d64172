"""Load what an estimate needs: Nadi's descriptions by name or file, and Calculon's JSON files."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from nadi.errors import FormatError
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
from nadi.models.llm.language_model import language_model_from
from nadi.models.llm.library import load_language_model, read_model_keys
from nadi.systems.library import load_system, read_system_keys, system_file_from

__all__ = [
    "machine_from_keys", "read_execution", "read_language_keys", "read_machine",
    "read_machine_keys", "read_model",
    "read_plan_fields", "system_and_plan",
]  # fmt: skip

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


def read_machine(path_or_name: Path | str, ranks: int = 0, tier: str = "") -> MachineDescription:
    """Read a machine: a system by name or file, or Calculon's system file.

    Parameters
    ----------
    ranks
        How many there are, which a system's network depends on; by default those of a node.
    tier
        As for :func:`nadi.estimates.machine_of_system`; Calculon's file has one.

    Raises
    ------
    InputError
        As for :func:`read_model`.
    UsageError
        If no system has this name, it does not fit so many ranks, or it does not state what
        an estimate needs.
    """
    if _is_of_calculon(path_or_name, _OF_MACHINE):
        return _read(Path(path_or_name), MachineDescription)
    return machine_of_system(load_system(path_or_name, ranks or None), tier)


def read_language_keys(path_or_name: Path | str) -> dict[str, Any] | None:
    """Read what the file of a language model states; None if it is Calculon's.

    Raises
    ------
    InputError, UsageError
        As for :func:`nadi.models.load_language_model`.
    """
    if _is_of_calculon(path_or_name, _OF_MODEL):
        return None
    keys = read_model_keys(path_or_name)
    language_model_from(keys, str(path_or_name))
    return dict(keys)


def read_machine_keys(path_or_name: Path | str) -> dict[str, Any] | None:
    """Read what the file of a system states; None if it is Calculon's.

    Raises
    ------
    InputError, UsageError
        As for :func:`nadi.systems.read_system_file`.
    """
    if _is_of_calculon(path_or_name, _OF_MACHINE):
        return None
    keys = read_system_keys(path_or_name)
    system_file_from(keys, path_or_name)
    return dict(keys)


def machine_from_keys(
    keys: Mapping[str, Any], path_or_name: Path | str, ranks: int, tier: str = ""
) -> MachineDescription:
    """Describe a machine by what a system's file states, or would.

    Parameters
    ----------
    keys
        As :func:`read_machine_keys` reads them.
    path_or_name
        Of the file.
    ranks, tier
        As for :func:`read_machine`.

    Raises
    ------
    InputError, UsageError
        As for :func:`read_machine`.
    """
    return machine_of_system(system_file_from(keys, path_or_name).fit(ranks or None), tier)


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
