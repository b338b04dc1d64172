"""Nadi: what bounds an AI training or inference step, from the traces that PyTorch writes.

>>> import nadi
>>> run = nadi.run("traces", what_if="scale aten::mm 0.5")
>>> run.path.by_kind()

The main verbs and values stand here; everything else is in a room by its subject, such as
``nadi.whatif``. Names and rooms are declared in ``__init__.pyi`` and loaded when they are first
used, so that ``import nadi`` costs little.
"""

import sys
from importlib import import_module
from typing import Any

from lazy_loader import attach_stub

from nadi.old_names import OLD_PACKAGES, OldPackages

_declared, __dir__, __all__ = attach_stub(__name__, __file__)
sys.meta_path.append(OldPackages)  # type: ignore[arg-type]


def __getattr__(name: str) -> Any:
    """Return what is declared, or a package of version 0.3."""
    return import_module(f"nadi.{name}") if name in OLD_PACKAGES else _declared(name)
