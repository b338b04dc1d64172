"""Load systems by name, from those shipped with Nadi or from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nadi.errors import FormatError
from nadi.files.settings_text import parse_settings
from nadi.files.shipped_files import Shelf
from nadi.systems.device_library import load_device
from nadi.systems.system import System
from nadi.systems.system_file import SystemFile, system_from
from nadi.trace.trace import Job

__all__ = [
    "load_system",
    "read_system_file",
    "read_system_keys",
    "recorded_devices",
    "shipped_systems",
    "shipped_text",
    "system_file_from",
]

_SHELF = Shelf("systems", "system", "nadi systems lists them")


def shipped_systems() -> list[str]:
    """Return the names of the systems shipped with Nadi, in alphabetical order."""
    return _SHELF.names()


def shipped_text(name: str) -> str:
    """Return the text of a system file shipped with Nadi, to copy and edit.

    Raises
    ------
    UsageError
        If no system has this name; the message lists similar names.
    """
    return _SHELF.text(name)


def read_system_file(path_or_name: Path | str) -> SystemFile:
    """Read the description of a system, which allows several numbers of ranks.

    Parameters
    ----------
    path_or_name
        A file in TOML, YAML or JSON, or the name of a system shipped with Nadi.

    Raises
    ------
    InputError
        If the file cannot be read or is invalid; the message states the JSON path.
    UsageError
        If no system has this name.
    """
    return system_file_from(read_system_keys(path_or_name), path_or_name)


def read_system_keys(path_or_name: Path | str) -> Any:
    """Read what the file of a system states, unchecked: dicts, lists and plain values.

    Raises
    ------
    InputError, UsageError
        As for :func:`read_system_file`, but for what is invalid in it.
    """
    content, suffix, name = _SHELF.described(path_or_name)
    return parse_settings(content, suffix, name, "system")


def system_file_from(keys: Any, path_or_name: Path | str) -> SystemFile:
    """Check what a file states, and find the device that it names.

    Parameters
    ----------
    path_or_name
        Of the file; a device's file is beside it.

    Raises
    ------
    InputError, UsageError
        As for :func:`read_system_file`.
    """
    described = system_from(keys, str(path_or_name))
    named = described.compute.device
    if not named:
        return described
    beside = Path(path_or_name).parent / named  # a file is named as the system's file sees it
    return described.with_kernels(load_device(beside if named.endswith(".toml") else named))


def load_system(path_or_name: Path | str, ranks: int | None = None) -> System:
    """Load a system for a simulation.

    Parameters
    ----------
    path_or_name
        As for :func:`read_system_file`.
    ranks
        Number of ranks of the job. By default that of one node, or of the largest shape.

    Raises
    ------
    InputError, UsageError
        As for :func:`read_system_file`, and if the system does not allow this number of ranks.
    """
    return read_system_file(path_or_name).fit(ranks)


def recorded_devices(job: Job) -> str:
    """Return the device name of a recording; empty if it does not state one."""
    for trace in job.traces:
        attributes = trace.attributes
        for row in attributes.rows_named("deviceProperties").tolist():
            try:
                found = attributes.python_value(row)
            except FormatError:
                continue
            if isinstance(found, list) and found and isinstance(found[0], dict):
                return str(found[0].get("name", ""))
    return ""
