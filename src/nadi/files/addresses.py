"""Locate files on this machine, or at an address such as s3://bucket/trace.et."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from nadi.errors import InputError, Parameter, UsageError

__all__ = ["check_target", "is_local", "locate"]

_EXTRAS = {"s3": "s3", "gs": "gcs", "gcs": "gcs", "http": "http", "https": "http"}


def locate(place: Path | str) -> Path:
    """Return a path that can be opened and listed, for a local path or an address.

    Raises
    ------
    InputError
        If it is no text or empty, the protocol unknown, or the package that it needs not installed.
    """
    if place == "":  # which a Path would take for this folder: often a variable that is not set
        raise InputError("''", "is no path", "name a file or a folder")
    if not isinstance(place, str | os.PathLike) and not hasattr(place, "open"):
        what = f"it is of type {type(place).__name__}, neither a text nor a Path"
        raise InputError("path", what, "name a file or a folder")
    if isinstance(place, Path) or "://" not in str(place):
        path = Path(place)
        try:
            path.exists()
        except OSError as error:  # a name that is too long, or a folder that hides what it has
            raise InputError(str(path), f"cannot be read: {error.strerror}", "check it") from None
        return path
    protocol = str(place).partition("://")[0]
    try:
        if protocol in ("http", "https"):
            from nadi.files.web_paths import WebPath

            return cast("Path", WebPath(str(place)))
        from upath import UPath

        found = UPath(str(place))
        _ = found.fs  # imports the package that serves the protocol
    except ImportError as error:
        extra = _EXTRAS.get(protocol)
        remedy = f"pip install 'nadi[{extra}]'" if extra else str(error)
        raise InputError(str(place), f"{protocol}:// needs an optional package", remedy) from None
    except Exception as error:
        raise InputError(str(place), f"cannot be opened: {error}", "check the address") from None
    return cast("Path", found)


def is_local(path: Path) -> bool:
    """Return whether a path is on this machine's own file system."""
    return isinstance(path, Path)


def check_target(target: Path, sources: Sequence[Path], *, overwrite: bool) -> None:
    """Check that an output file may be written, before it is computed from ``sources``.

    Raises
    ------
    UsageError
        If it is one of the input files.
    InputError
        If it exists already and ``overwrite`` is not given.
    """
    for source in sources:
        if target == source or (is_local(target) and target.exists() and source.exists()
                                and is_local(source) and target.samefile(source)):  # fmt: skip
            raise UsageError(
                str(target), "the output would replace an input file", "give another name"
            )
    if not overwrite and target.is_file():
        raise InputError(
            str(target), "exists already", ["give another name, or ", Parameter("overwrite", True)]
        )
