"""Compiles the kernels that a wheel carries: ``python -m nadi.kernels.build_kernels FOLDER``.

For the processor that ``NUMBA_CPU_NAME`` names, and without any feature besides.
"""

import gc
import json
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from nadi.kernels.compile_ahead import compile_known, known_kernels
from nadi.kernels.kernel_cache import kernel_place, surroundings_of_wheel

# what processors have to have, by LLVM's names
_FEATURES = {
    "x86-64-v3": (
        "avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sse3",
        "sse4.1", "sse4.2", "ssse3", "xsave",
    ),
    "generic": ("neon",),
}  # fmt: skip


def compile_on_all_cores(folder: Path) -> int:
    """Compile all known kernels that a folder lacks into it; gives how many they were."""
    known = dict.fromkeys(one for known in known_kernels().values() for one in known)
    missing = [one for one in known if not kernel_place(folder, one.module, one.entry).exists()]
    # what takes most arguments takes longest: begun last, it would keep one core alone
    missing.sort(key=lambda one: -len(str(one.signature)))
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), spawned, gc.set_threshold, (100_000, 20)) as executor:
        list(executor.map(partial(compile_known, root=folder), missing))
    return len(missing)


def build(folder: Path) -> int:
    """Write the kernels of a wheel; gives how many they are."""
    count = compile_on_all_cores(folder)
    about = {**surroundings_of_wheel(), "features": _FEATURES[os.environ["NUMBA_CPU_NAME"]]}
    (folder / "about.json").write_text(json.dumps(about, indent=1) + "\n")
    for place in (folder, *folder.rglob("*")):
        place.chmod(0o755 if place.is_dir() else 0o644)
    return count


if __name__ == "__main__":
    sys.stdout.write(f"compiled {build(Path(sys.argv[1]))} kernels\n")
