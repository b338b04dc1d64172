"""Load ASTRA-sim's configuration files unchanged: network, system, memory, groups."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from nadi.errors import FormatError, InputError
from nadi.files.files import read_settings
from nadi.files.settings_text import decode_json
from nadi.systems.importers.astra_sim import AstraSimOptions, astra_sim_system
from nadi.systems.system import System
from nadi.systems.system_file import GroupRank

__all__ = ["load_astra_sim_system", "read_comm_groups"]

_PER_NODE = "per-node-custom-implementation"


def load_astra_sim_system(
    network: Path | str,
    system: Path | str,
    remote_memory: Path | str | None = None,
    comm_group: Path | str | None = None,
    options: AstraSimOptions = AstraSimOptions(),  # noqa: B008  it cannot be changed
) -> System:
    """Read a system from the configuration files that are passed to ASTRA-sim.

    Parameters
    ----------
    network
        YAML: topology, npus_count, bandwidth (in GB/s, where 1 GB is 2^30 bytes) and latency.
    system, remote_memory, comm_group
        JSON.
    options
        Command line options of ASTRA-sim.

    Raises
    ------
    InputError
        If a file cannot be read, or has an invalid value.
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
    names = {"network": network, "system": system, "memory": remote_memory, "groups": comm_group}
    try:
        return astra_sim_system(**given, options=options, name=Path(system).name)
    except FormatError as error:  # which says which of the four it is, and where in it
        kind, colon, inside = error.where.partition(":")
        where = f"{names.get(kind) or kind}{colon}{inside}"
        raise FormatError(where, error.what, error.remedy) from None


def read_comm_groups(path: Path | str) -> dict[str, tuple[int, ...]]:
    """Read ASTRA-sim's file of process groups: the ranks of each by name, as ``System.groups``.

    Raises
    ------
    InputError
        If the file cannot be read, or has another structure.
    """
    return decode_json(
        read_settings(Path(path)), dict[str, tuple[GroupRank, ...]], str(path),
        'write a JSON object such as {"1": [0, 1], "2": [2, 3]}', "not a file of process groups",
    )  # fmt: skip


def _read_text(path: Path) -> str:
    try:
        return read_settings(path).decode()
    except UnicodeDecodeError:
        raise InputError(str(path), "is not UTF-8 text", "check the path") from None


def _read_json(path: Path) -> dict[str, Any]:
    remedy = "use the file that is passed to ASTRA-sim"
    return decode_json(read_settings(path), dict[str, Any], str(path), remedy)


def _read_yaml(path: Path) -> dict[str, Any]:
    """Read the YAML of network files: keys with a value, lists in brackets or with dashes."""
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
