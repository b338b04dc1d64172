"""Wheels that carry compiled kernels: ``make wheel``; ``pip install .`` leaves them out.

With ``NADI_BUILD_KERNELS=1`` the kernels of ``known_kernels.json`` are compiled for processors
of a common kind, and the wheel is one for this Python and this system. Nadi's dependencies have
to be installed where this runs, and their versions are what the kernels will be used with.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_CPU = {"x86_64": "x86-64-v3", "AMD64": "x86-64-v3", "aarch64": "generic", "arm64": "generic"}


class KernelsHook(BuildHookInterface):
    """Compiles kernels and puts them into the wheel, beside the sources."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add a folder of compiled kernels if an environment variable says so."""
        if self.target_name != "wheel" or version == "editable":
            return
        if os.environ.get("NADI_BUILD_KERNELS") != "1":
            return
        self._made = tempfile.TemporaryDirectory()
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(self.root) / "src"),
            "NUMBA_CPU_NAME": _CPU[platform.machine()],
            "NUMBA_CPU_FEATURES": "",
        }
        subprocess.run(
            [sys.executable, "-m", "nadi.kernels.build_kernels", self._made.name],
            env=environment, check=True,
        )  # fmt: skip
        build_data["force_include"][self._made.name] = "nadi/built_kernels"
        build_data["pure_python"] = False
        build_data["tag"] = f"cp{sys.version_info[0]}{sys.version_info[1]}-none-{_platform()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the folder."""
        if made := getattr(self, "_made", None):
            made.cleanup()


def _platform() -> str:
    """Give the tag of the system; on Linux of any: kernels call little of the C library."""
    name = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return name.replace("linux_", "manylinux_2_17_", 1)
