"""Load devices by name, from those shipped with Nadi or from files."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from nadi.files.files import read_settings
from nadi.files.shipped_files import Shelf
from nadi.systems.device import Device, parse_device_file

__all__ = ["load_device", "shipped_devices"]

_SHELF = Shelf("devices", "device", "nadi.systems.shipped_devices() lists them")


def shipped_devices() -> list[str]:
    """Return the names of the devices shipped with Nadi, in alphabetical order."""
    return _SHELF.names()


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
    if _SHELF.has_name(path_or_name):
        return _shipped(str(path_or_name))
    return parse_device_file(read_settings(Path(path_or_name), "check the path"), str(path_or_name))


@cache
def _shipped(name: str) -> Device:
    return parse_device_file(_SHELF.text(name).encode(), name)
