"""Load systems by name, from those shipped with Nadi or from files.

Read measured tables of collectives, and NCCL's logs.

Load devices by name, from those shipped with Nadi or from files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nadi.errors import FormatError, InputError, UsageError, checked
from nadi.files.files import HEAD_SIZE, read_file, read_head, read_settings
from nadi.files.settings_text import parse_settings
from nadi.files.shipped_files import Shelf
from nadi.systems.device import Device, parse_device_file, scaled_device
from nadi.systems.nccl.inspector import (
    inspected_table,
    looks_inspected,
    parse_inspector,
    tables_of_inspected,
)
from nadi.systems.nccl.measured import MeasuredCollective, NcclLog, parse_nccl_log, parse_nccl_tests
from nadi.systems.system import System
from nadi.systems.system_file import SystemFile, system_from
from nadi.trace.trace import Job, Trace

if TYPE_CHECKING:
    import polars as pl

# lines that nccl-tests prints before its rows
_TABLE = re.compile(rb"^[^\n]*#\s+size\s+count|#\s*nThread\b|#\s+Using devices", re.MULTILINE)

_LOGS = (".log", ".jsonl", ".log.gz")  # of the Inspector

_SHELF_OF_LIBRARY = Shelf("devices", "device", "nadi.systems.shipped_devices() lists them")


def shipped_devices() -> list[str]:
    """Return the names of the devices shipped with Nadi, in alphabetical order."""
    return _SHELF_OF_LIBRARY.names()


def load_device(path_or_name: Path | str) -> Device:
    """Load the kernel model of a device.

    Parameters
    ----------
    path_or_name
        A file in TOML, or the name of a device shipped with Nadi.

    Raises
    ------
    InputError
        If the file cannot be read or is invalid; the message states the path in it.
    UsageError
        If no device has this name; the message lists similar names.
    """
    if _SHELF_OF_LIBRARY.has_name(path_or_name):
        return _shipped(str(path_or_name))
    return parse_device_file(read_settings(Path(path_or_name), "check the path"), str(path_or_name))


@cache
def _shipped(name: str) -> Device:
    return parse_device_file(_SHELF_OF_LIBRARY.text(name).encode(), name)


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

    - Raises InputError, UsageError as for :func:`read_system_file`, but for what is invalid in it.
    """
    content, suffix, name = _SHELF.described(path_or_name)
    return parse_settings(content, suffix, name, "system")


def system_file_from(keys: Any, path_or_name: Path | str) -> SystemFile:
    """Check what a file states, and find the device that it names.

    - ``path_or_name``: Of the file; a device's file is beside it.
    - Raises InputError, UsageError as for :func:`read_system_file`.
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


def recorded_devices(job: Job | Sequence[Trace]) -> str:
    """Return the device name of a recording; empty if it does not state one."""
    for trace in job.traces if isinstance(job, Job) else job:
        attributes = trace.attributes
        for row in attributes.rows_named("deviceProperties").tolist():
            try:
                found = attributes.python_value(row)
            except FormatError:
                continue
            if isinstance(found, list) and found and isinstance(found[0], dict):
                return str(found[0].get("name", ""))
    return ""


def read_measured_collectives(paths: Sequence[Path | str]) -> tuple[MeasuredCollective, ...]:
    """Read measured times of collectives.

    Parameters
    ----------
    paths
        Outputs of nccl-tests, of one collective, number of ranks and number of nodes each; files of
        NCCL's Inspector, or folders of them, which together are one measurement.

    Raises
    ------
    InputError
        If a file cannot be read, or is no such output.
    UsageError
        If two are of the same collective, ranks and nodes.
    """
    tables: list[MeasuredCollective] = []
    inspected: list[pl.DataFrame] = []
    for path in paths:
        for file in _files_at(Path(path)):
            raw = read_file(file)
            if looks_inspected(raw.content[:HEAD_SIZE].tobytes()):
                inspected.append(parse_inspector(raw))
            else:
                tables.append(parse_nccl_tests(raw.content.tobytes(), str(file)))
    tables += tables_of_inspected(inspected, "NCCL's Inspector")
    found: dict[tuple[str, int, int], MeasuredCollective] = {}
    for table in tables:
        key = table.collective, table.ranks, table.nodes
        if key in found:
            raise UsageError(
                table.name,
                f"{table.collective} of {table.ranks} ranks on {table.nodes} nodes is also in "
                f"{found[key].name}", "give one of the two",
            )  # fmt: skip
        found[key] = table
    return tuple(found.values())


def has_measured_collectives(path: Path | str) -> bool:
    """Tell whether a file or folder is what :func:`read_measured_collectives` reads."""
    path = Path(path)
    if path.is_dir():
        return any(one.name.endswith(_LOGS) for one in path.iterdir() if one.is_file())
    head = read_head(path)
    return looks_inspected(head) or _TABLE.search(head) is not None


@checked
def read_inspector(paths: Sequence[Path | str]) -> pl.DataFrame:
    """Tabulate what NCCL's Inspector has measured, see :func:`inspected_table`.

    Raises
    ------
    InputError
        If a file cannot be read, or is none of the Inspector's.
    """
    files = [file for path in paths for file in _files_at(Path(path))]
    return inspected_table([parse_inspector(read_file(file)) for file in files])


def _files_at(path: Path) -> list[Path]:
    """Return a file, or the logs of a folder."""
    if not path.is_dir():
        return [path]
    files = sorted(one for one in path.iterdir() if one.is_file() and one.name.endswith(_LOGS))
    if not files:
        raise InputError(
            str(path), f"the folder has no file that ends in {', '.join(_LOGS)}",
            "name the folder into which NCCL's Inspector has written",
        )  # fmt: skip
    return files


def read_nccl_log(path: Path | str) -> NcclLog:
    """Read a log that NCCL printed.

    Raises
    ------
    InputError
        If it cannot be read, or describes no graph.
    """
    return parse_nccl_log(bytes(read_file(Path(path)).content), str(path))


class DeviceRoofs(NamedTuple):
    """The peaks of a device, as data sheets state them."""

    recorded: str  # the name in the recording
    system: str  # the system that ships with Nadi and has this device
    bytes_per_second: float  # of its memory
    # operations per second by type of elements, such as ``bfloat16``; ``""`` for others
    peak: dict[str, float]


def recorded_roofs(job: Job) -> DeviceRoofs | None:
    """Return the roofs of the device that a recording names; None if it ships not with Nadi."""
    recorded = recorded_devices(job)
    if not recorded:
        return None
    for name in shipped_systems():
        system = read_system_file(name)
        named = system.compute.device
        if named and any(one in recorded for one in system.compute.devices):
            own = load_device(named)  # of the same chip, perhaps with another memory
            device = scaled_device(own, system.peak, system.memory_bandwidth)
            return DeviceRoofs(recorded, name, device.bandwidth, dict(device.peak))
    return None


# PyTorch's names of types, and those of devices
_TYPES = {
    "BFloat16": "bfloat16", "Half": "float16", "float": "float32", "double": "float64",
    "Float8_e4m3fn": "float8_e4m3fn", "Float8_e5m2": "float8_e5m2", "signed char": "int8",
}  # fmt: skip


def describe_roofs(roofs: DeviceRoofs, types: Iterable[str]) -> dict[str, Any]:
    """Give the roofs for types of elements, as recorded, and where the two meet (ridge point)."""
    rows = []
    for one in sorted(set(types)):
        peak = roofs.peak.get(_TYPES.get(one, ""), 0.0)
        if peak:
            rows.append({
                "type": one, "peak_tflops": peak / 1e12, "tb_per_s": roofs.bytes_per_second / 1e12,
                "ridge_flops_per_byte": peak / roofs.bytes_per_second,
            })  # fmt: skip
    return {"recorded": roofs.recorded, "system": roofs.system, "types": rows}
