"""Damage files for as long as you like: ``python tests/fuzz/long.py [SECONDS] [SEED]``.

Prints each kind of failure once, with the seed that makes the same damage again, and exits
with 1 if there was any. A seed given runs that one input, with the whole traceback.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

if __name__ == "__main__":  # the folder that the package ``tests`` is in
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fuzz.corpus import samples
from tests.fuzz.mutations import mutated
from tests.fuzz.outcome import WRITTEN, check_flipped, check_use

__all__ = ["run_one"]


def run_one(seed: str, folder: Path) -> bool:
    """Damage a sample as a seed says, and check what comes of it; tells whether it was read.

    Parameters
    ----------
    seed
        Name of the sample, a colon, and a number.
    folder
        Where files go.
    """
    name, _, number = seed.partition(":")
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


def _explore(seconds: float, folder: Path) -> int:
    first = random.SystemRandom().randrange(10**12)
    names = list(samples())
    kinds: Counter[str] = Counter()
    read = Counter[str]()
    count = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        seed = f"{names[count % len(names)]}:{first + count}"
        count += 1
        try:
            read[names[(count - 1) % len(names)]] += run_one(seed, folder)
        except KeyboardInterrupt:
            break
        except BaseException as error:  # what compiled libraries raise is no Exception
            frame = traceback.extract_tb(error.__traceback__)[-1]
            kind = f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
            kinds[kind] += 1
            if kinds[kind] == 1:
                print(f"{seed}  {kind}: {str(error)[:300]}", flush=True)
    print(f"{count} inputs, {sum(kinds.values())} failures of {len(kinds)} kinds: {dict(kinds)}")
    print(f"read: {dict(read)}")
    return 1 if kinds else 0


def _main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) > 2:
            print("read" if run_one(sys.argv[2], Path(folder)) else "refused")
            return 0
        return _explore(float(sys.argv[1]) if len(sys.argv) > 1 else 60, Path(folder))


if __name__ == "__main__":
    raise SystemExit(_main())
