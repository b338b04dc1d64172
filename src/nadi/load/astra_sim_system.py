"""ASTRA-sim's own configuration files, as they are: network, system, memory, groups."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from nadi.errors import FormatError, InputError
from nadi.formats.files import read_settings
from nadi.simulator.machine.astra_sim_config import AstraSimOptions, astra_sim_system
from nadi.simulator.machine.system import System
from nadi.units import lowered

__all__ = ["load_astra_sim_system", "read_comm_groups"]

_PER_NODE = "per-node-custom-implementation"


def load_astra_sim_system(
    network: Path | str,
    system: Path | str,
    remote_memory: Path | str | None = None,
    comm_group: Path | str | None = None,
    options: AstraSimOptions = AstraSimOptions(),  # noqa: B008  it cannot be changed
) -> System:
    """Read a system from the four files that ASTRA-sim is started with.

    Parameters
    ----------
    network
        YAML: topology, npus_count, bandwidth (GB/s, of which one is 2^30 bytes/s) and latency.
    system, remote_memory, comm_group
        JSON.
    options
        What ASTRA-sim is told beside its files.

    Raises
    ------
    InputError
        If a file cannot be read, or says what cannot be.
    """
    given: dict[str, Any] = {
        "network": _read_yaml(Path(network)),
        "system": _read_json(Path(system)),
        "remote_memory": _read_json(Path(remote_memory)) if remote_memory else {},
        "comm_group": _read_json(Path(comm_group)) if comm_group else {},
    }
    own = given["system"].get(_PER_NODE)
    if isinstance(own, str):  # beside the folder that ASTRA-sim is started in, as all it names
        given["system"] |= {_PER_NODE: _read_yaml(Path(own))}
    return astra_sim_system(**given, options=options, name=Path(system).name)


def read_comm_groups(path: Path | str) -> dict[str, tuple[int, ...]]:
    """Read ASTRA-sim's file of process groups: the ranks of each by name, as ``System.groups``.

    Raises
    ------
    InputError
        If it cannot be read, or is something else.
    """
    try:
        return msgspec.json.decode(_read_text(Path(path)), type=dict[str, tuple[int, ...]])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FormatError(
            str(path), f"it is no file of process groups: {lowered(str(error))}",
            'write a JSON object such as {"1": [0, 1], "2": [2, 3]}',
        ) from None  # fmt: skip


def _read_text(path: Path) -> str:
    try:
        return read_settings(path).decode()
    except UnicodeDecodeError:
        raise InputError(str(path), "cannot be read: it is no text", "check the path") from None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(_read_text(path), type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FormatError(
            str(path), lowered(str(error)), "give the file that ASTRA-sim is started with"
        ) from None


def _read_yaml(path: Path) -> dict[str, Any]:
    """Read the YAML of network files: keys with a value, a list in brackets or one of dashes."""
    found: dict[str, Any] = {}
    key = ""
    for number, line in enumerate(_read_text(path).splitlines(), 1):
        text = re.sub(r"(^|\s)#.*", "", line).strip()
        if not text or text in ("---", "..."):
            continue
        if text.startswith("- ") and isinstance(found.get(key), list):
            found[key].append(_scalar(text[2:]))
            continue
        key, colon, value = (part.strip() for part in text.partition(":"))
        if not colon:
            raise FormatError(f"{path}:{number}", f"expected 'key: value', got {text!r}")
        if value.startswith("[") and value.endswith("]"):
            found[key] = [_scalar(item) for item in value[1:-1].split(",") if item.strip()]
        else:
            found[key] = _scalar(value) if value else []
    return found


def _scalar(text: str) -> str | int | float:
    text = text.strip().strip("'\"")
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            pass
    return text
