"""Runs when a Python process starts under ``nadi record``; then runs the one that it stands for.

Python imports one module of this name. The environment may have its own, further down the path.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _next() -> None:
    """Import the environment's own module of this name, if it has one."""
    own = sys.modules.pop("sitecustomize", None)
    places = [place for place in sys.path if os.path.abspath(place or ".") == _HERE]
    sys.path[:] = [place for place in sys.path if place not in places]
    try:
        with contextlib.suppress(ImportError):
            importlib.import_module("sitecustomize")
    finally:
        sys.path[:0] = places
        if own is not None:
            sys.modules.setdefault("sitecustomize", own)


if os.environ.get("NADI_COLLECT"):
    try:
        importlib.import_module("collected_process").prepare()
    except Exception as error:
        sys.stderr.write(f"nadi record: cannot record this process: {error!r}\n")
    _next()
