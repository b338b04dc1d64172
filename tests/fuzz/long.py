"""Try hostile input for as long as you like: ``python tests/fuzz/long.py [SECONDS] [SEED] [NAMES]``.

SECONDS may be a count of inputs, such as ``20000x``. Prints each kind of failure once, with the
seed that makes the same input again, and exits with 1 if there was any. A SEED such as
``what-if:17`` runs that one input, with the whole traceback; a number alone is the first of the
seeds that are tried, so that a run can be done again. NAMES, with commas between them, are what is
tried; by default all.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

if __name__ == "__main__":  # the folder that the package ``tests`` is in, and not that of this
    # file, whose modules have names that other packages have, too
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.fuzz.commands import LONGEST
from tests.fuzz.corpus import samples
from tests.fuzz.mutations import mutated
from tests.fuzz.outcome import WRITTEN, check_flipped, check_use
from tests.fuzz.targets import TARGETS

__all__ = ["run_one"]

_MEMORY = 6 << 30  # bytes that a run may take: more is a failure too


def run_one(seed: str, folder: Path) -> bool:
    """Make an input as a seed says, and check what comes of it; tells whether it was taken.

    Parameters
    ----------
    seed
        What is tried, a colon, and a number: a target, or a sample, which is damaged and read.
    folder
        Where files go.
    """
    name, _, number = seed.partition(":")
    if name in TARGETS:
        return TARGETS[name](seed, folder)
    found = samples()
    chance = random.Random(seed)
    # mostly another of the same format: those fit together best
    others = [s for s in found.values() if s.format == found[name].format or chance.random() < 0.3]
    sample = found[name]
    path = folder / f"damaged{sample.suffix}"
    path.write_bytes(mutated(sample.content, chance.choice(others).content, seed))
    trace = check_flipped(path, sample.format)
    if trace is not None:
        check_use(trace, folder, WRITTEN[int(number) % len(WRITTEN)])
    return trace is not None


def _explore(limit: str, first: int, names: list[str], folder: Path) -> int:
    kinds: Counter[str] = Counter()
    tried, taken = Counter[str](), Counter[str]()
    most = int(limit[:-1]) if limit.endswith("x") else sys.maxsize
    end = time.monotonic() + (float(limit) if not limit.endswith("x") else float("inf"))
    begun = folder / "begun"  # the seed that runs, should the process be killed by it
    while tried.total() < most and time.monotonic() < end:
        name = names[tried.total() % len(names)]
        seed = f"{name}:{first + tried.total()}"
        tried[name] += 1
        try:
            begun.write_text(seed)
            since = time.process_time()
            taken[name] += run_one(seed, folder)
            spent = time.process_time() - since
            assert spent < LONGEST, f"{spent:.0f} s"
        except KeyboardInterrupt:
            break
        except BaseException as error:  # what compiled libraries raise is no Exception
            frame = traceback.extract_tb(error.__traceback__)[-1]
            kind = f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
            kinds[kind] += 1
            if kinds[kind] == 1:
                print(f"{seed}  {kind}: {str(error)[:300]!r}", flush=True)
    print(
        f"{tried.total()} inputs from seed {first}, {sum(kinds.values())} failures of "
        f"{len(kinds)} kinds: {dict(kinds)}"
    )
    print("taken:", ", ".join(f"{name} {taken[name]} of {count}" for name, count in tried.items()))
    return 1 if kinds else 0


def _bound_memory() -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def _main() -> int:
    limit = sys.argv[1] if len(sys.argv) > 1 else "60"
    seed = sys.argv[2] if len(sys.argv) > 2 else str(random.SystemRandom().randrange(10**12))
    names = sys.argv[3].split(",") if len(sys.argv) > 3 else [*samples(), *TARGETS]
    _bound_memory()
    with tempfile.TemporaryDirectory() as folder:
        if ":" in seed:
            print("taken" if run_one(seed, Path(folder)) else "refused")
            return 0
        return _explore(limit, int(seed), names, Path(folder))


if __name__ == "__main__":
    raise SystemExit(_main())
