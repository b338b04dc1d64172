"""The packages of version 0.3 by their old names, for one release.

What stood in ``nadi.pipeline`` and its like stands in rooms now. A name means one thing in all of
them, so that it is found without a table.
"""

import warnings
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

OLD_PACKAGES = frozenset((
    "analyze", "charts", "collect", "comparison", "estimate", "extraction", "feed", "folding",
    "formats", "generate", "link", "load", "model", "obfuscation", "pipeline", "placement",
    "pricing", "replay", "report", "scaling", "simulator", "synthesis", "waiting", "workload",
))  # fmt: skip


class OldPackages:
    """A finder and loader of the old packages, for ``sys.meta_path``; it comes last there."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of an old package; of anything else None."""
        parent, _, package = name.rpartition(".")
        known = parent == "nadi" and package in OLD_PACKAGES
        return ModuleSpec(name, OldPackages) if known else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """Let Python make the module."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Let the module look its names up in the rooms."""
        module.__getattr__ = partial(moved, module.__name__)  # type: ignore[method-assign]


def moved(package: str, name: str) -> Any:
    """Return what a name of an old package means, and say where it stands now."""
    nadi = import_module("nadi")
    for room in nadi.__all__:
        module = getattr(nadi, room)
        if isinstance(module, ModuleType) and name in getattr(module, "__all__", ()):
            warnings.warn(
                f"{package}.{name} has moved to nadi.{room}.{name}; the old name goes with the "
                "next release", DeprecationWarning, stacklevel=2,
            )  # fmt: skip
            return getattr(module, name)
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
