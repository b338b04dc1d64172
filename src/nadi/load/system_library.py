"""Systems by name: those that come with Nadi, and files."""

from __future__ import annotations

import difflib
from importlib import resources
from pathlib import Path

from nadi.errors import UsageError
from nadi.formats.files import read_settings
from nadi.simulator.machine.system import System
from nadi.simulator.machine.system_file import SystemFile, parse_system_file

__all__ = ["load_system", "read_system_file", "shipped_systems", "shipped_text"]

_FOLDER = resources.files("nadi") / "data" / "systems"
_ENDINGS = (".toml", ".yaml", ".yml", ".json")


def shipped_systems() -> list[str]:
    """Give the names of the systems that come with Nadi, in order."""
    names = (entry.name for entry in _FOLDER.iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def shipped_text(name: str) -> str:
    """Give the file of a system that comes with Nadi, to be copied and edited.

    Raises
    ------
    UsageError
        If there is none of that name; the message names similar ones.
    """
    known = shipped_systems()
    if name not in known and Path(name).is_dir():
        raise UsageError(f"system {name!r}", "it is a folder, and no file", "name the file in it")
    if name not in known:
        near = difflib.get_close_matches(name.lower(), known, n=2, cutoff=0.4)
        remedy = f"did you mean {' or '.join(near)}" if near else f"there are {', '.join(known)}"
        raise UsageError(
            f"system {name!r}", "there is no file and no system of that name",
            f"{remedy}; nadi systems lists them",
        )  # fmt: skip
    return (_FOLDER / f"{name}.toml").read_text(encoding="utf-8")


def read_system_file(path_or_name: Path | str) -> SystemFile:
    """Read the description of a system, which is for any number of ranks that it allows.

    Parameters
    ----------
    path_or_name
        A file in TOML, YAML or JSON, or the name of a system that comes with Nadi.

    Raises
    ------
    InputError
        If the file cannot be read or understood, with the JSON path of what is wrong.
    UsageError
        If there is no system of that name.
    """
    path = Path(path_or_name)
    if path.suffix.lower() not in _ENDINGS and not path.is_file():
        text = shipped_text(str(path_or_name))
        return parse_system_file(text.encode(), ".toml", str(path_or_name))
    content = read_settings(path, "check the path; nadi systems lists what comes with Nadi")
    return parse_system_file(content, path.suffix, str(path))


def load_system(path_or_name: Path | str, ranks: int | None = None) -> System:
    """Load a system to simulate on.

    Parameters
    ----------
    path_or_name
        As for :func:`read_system_file`.
    ranks
        How many the job has. By default as many as one node, or as the largest shape.

    Raises
    ------
    InputError, UsageError
        As :func:`read_system_file` does, and if the system is not for so many ranks.
    """
    return read_system_file(path_or_name).fit(ranks)
