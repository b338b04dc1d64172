"""Load machines for offloaded inference by name, from those shipped with Nadi or from files."""

from __future__ import annotations

from pathlib import Path

from nadi.files.shipped_files import Shelf
from nadi.memory.offloading.flexgen_costs import OffloadMachine, parse_offload_machine

__all__ = ["load_offload_machine", "offload_machine_text"]

_SHELF = Shelf("offload", "machine", "nadi offload MODEL t4 uses the one that ships with Nadi")


def offload_machine_text(name: str) -> str:
    """Return the file of a machine shipped with Nadi, to copy and edit.

    Raises
    ------
    UsageError
        If no machine has this name; the message lists them.
    """
    return _SHELF.text(name)


def load_offload_machine(path_or_name: Path | str) -> OffloadMachine:
    """Load the description of a machine for offloaded inference.

    Parameters
    ----------
    path_or_name
        A file in TOML, YAML or JSON, or the name of a machine shipped with Nadi.

    Raises
    ------
    InputError
        If the file cannot be read or is invalid; the message states the path in it.
    UsageError
        If no machine has this name; the message lists them.
    """
    return parse_offload_machine(*_SHELF.described(path_or_name))
