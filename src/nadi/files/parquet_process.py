"""Parquet, read in a process of its own: polars ends its process on some damaged files."""

import io
import subprocess
import sys
from collections.abc import Sequence

import polars as pl

from nadi.files.files import available_memory, largest_content

_BYTES_OF_CELL = 8
_OWN_BYTES = 1 << 31  # that the process takes at most for itself
# of a damaged page, polars may ask for more memory than there is, which no Python catches; and a
# page of a few kB may be a text of GB
_PROGRAM = """
import io, sys
most, room, *columns = sys.argv[1:]
try:
    import resource
    resource.setrlimit(resource.RLIMIT_DATA, (int(room), int(room)))
except (ImportError, ValueError, OSError):  # on Windows
    pass
import polars as pl
content = io.BytesIO(sys.stdin.buffer.read())
try:
    stated = pl.scan_parquet(content)
    cells = stated.select(pl.len()).collect().item() * len(stated.collect_schema())
    if cells > int(most):
        raise ValueError("it claims far more rows than its bytes can hold")
    found = pl.read_parquet(content, columns=columns or None)
except BaseException as error:  # a panic is no Exception
    sys.stdout.buffer.write(str(error).encode(errors="replace"))
    sys.exit(2)
found.write_ipc(sys.stdout.buffer)
"""


def read_parquet_apart(content: bytes, columns: Sequence[str] = ()) -> pl.DataFrame:
    """Read columns of a Parquet file, all of them by default.

    - Raises ValueError if it is none, is damaged, or becomes far larger than its bytes can hold.
    """
    largest = largest_content(len(content))
    room = min(_OWN_BYTES + largest, available_memory())
    most = largest // _BYTES_OF_CELL
    done = subprocess.run(  # noqa: S603  this Python, without the modules of the working folder
        [sys.executable, "-P", "-c", _PROGRAM, str(most), str(room), *columns],
        input=content, capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode == 2:
        raise ValueError(done.stdout.decode(errors="replace"))
    if done.returncode:
        raise ValueError("it is damaged, or far larger than its bytes")
    return pl.read_ipc(io.BytesIO(done.stdout))
