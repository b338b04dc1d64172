"""Load what an estimate needs from JSON files, Calculon's as they are."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import TypeVar

import msgspec

from nadi.errors import FormatError
from nadi.estimate.estimated_model import ModelDescription
from nadi.estimate.execution import Execution
from nadi.estimate.machine_description import MachineDescription
from nadi.formats.files import read_settings
from nadi.units import lowered

__all__ = ["read_execution", "read_machine", "read_model"]

_Described = TypeVar("_Described", ModelDescription, MachineDescription, Execution)


def read_model(path: Path | str) -> ModelDescription:
    """Read a model: Calculon's application file.

    Raises
    ------
    InputError
        If it cannot be read, or breaks a rule; the message has the path in the file.
    """
    return _read(Path(path), ModelDescription)


def read_machine(path: Path | str) -> MachineDescription:
    """Read a machine: Calculon's system file.

    Raises
    ------
    InputError
        As for :func:`read_model`.
    """
    return _read(Path(path), MachineDescription)


def read_execution(path: Path | str) -> Execution:
    """Read an execution: Calculon's execution file.

    Raises
    ------
    InputError
        As for :func:`read_model`.
    """
    return _read(Path(path), Execution)


def _read(path: Path, kind: type[_Described]) -> _Described:
    content = read_settings(path)
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FormatError(str(path), lowered(str(error)), _remedy(str(error), kind)) from None


def _remedy(message: str, kind: type[_Described]) -> str:
    """Name what would fit."""
    unknown = re.search(r"unknown field `(.*?)`", message)
    fields = kind.__struct_fields__
    if unknown:
        near = difflib.get_close_matches(unknown[1], fields, n=1)
        return f"did you mean {near[0]}" if near else f"known: {', '.join(fields)}"
    what = {ModelDescription: "a model", MachineDescription: "a machine", Execution: "an execution"}
    return f"write {what[kind]} as docs/estimate.md shows it"
