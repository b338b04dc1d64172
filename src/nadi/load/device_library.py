"""Load devices by name, from those shipped with Nadi or from files."""

from __future__ import annotations

import difflib
from functools import cache
from importlib import resources
from pathlib import Path

from nadi.errors import UsageError
from nadi.formats.files import read_settings
from nadi.simulator.machine.device import Device, parse_device_file

__all__ = ["load_device", "shipped_devices"]

_FOLDER = resources.files("nadi") / "data" / "devices"


def shipped_devices() -> list[str]:
    """Return the names of the devices shipped with Nadi, in alphabetical order."""
    names = (entry.name for entry in _FOLDER.iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


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
        If no device has this name.
    """
    path = Path(path_or_name)
    if path.suffix.lower() == ".toml" or path.is_file():
        return parse_device_file(read_settings(path, "check the path"), str(path))
    return _shipped(str(path_or_name))


@cache
def _shipped(name: str) -> Device:
    known = shipped_devices()
    if name not in known:
        near = difflib.get_close_matches(name.lower(), known, n=2, cutoff=0.4)
        remedy = f"did you mean {' or '.join(near)}" if near else f"known: {', '.join(known)}"
        raise UsageError(f"device {name!r}", "no file and no device has this name", remedy)
    return parse_device_file((_FOLDER / f"{name}.toml").read_bytes(), name)
