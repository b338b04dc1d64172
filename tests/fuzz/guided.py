"""Let atheris choose inputs by the code that they reach: ``guided.py NAME [OPTIONS OF LIBFUZZER]``.

NAME is one of ``READERS``. What reaches new code is kept in ``tests/fuzz/kept/NAME``, from which the
next run goes on; ``test_targets.py`` reads all of it. Needs atheris, which has no wheels for all
versions of Python: ``pip install atheris``. ``-max_total_time=60`` ends it after a minute.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":  # the folder that the package ``tests`` is in
    sys.path[0] = str(Path(__file__).resolve().parents[2])

__all__ = ["KEPT"]

KEPT = Path(__file__).parent / "kept"


def _main() -> None:
    import atheris  # type: ignore[import-not-found]

    with atheris.instrument_imports(include=["nadi"]):
        from nadi.errors import NadiError
        from tests.fuzz.readers import READERS

    name = sys.argv[1]
    reader = READERS[name]
    kept = KEPT / name
    kept.mkdir(parents=True, exist_ok=True)
    (kept / name).write_bytes(reader.content())

    def read(content: bytes) -> None:
        try:
            reader.read(content)
        except NadiError as error:
            assert str(error).isprintable(), error

    atheris.Setup([sys.argv[0], str(kept), *sys.argv[2:]], read)
    atheris.Fuzz()


if __name__ == "__main__":
    _main()
