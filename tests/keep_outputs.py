"""What commands print on the demo and the examples, kept as files to compare with.

``python tests/keep_outputs.py`` writes ``tests/kept_outputs`` anew. Look at the difference: each
line of it is an answer that users get differently now.

Each line of ``kept_outputs/lines.txt`` runs in this process, in a folder with the demo, the
examples and three small files; some use what lines before them wrote. What differs between
machines or runs is masked. Of long lists in JSON the first rows are kept, of long text the begin,
with a digest of the whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nadi
from nadi.cli import main
from nadi.results.terminal import progress as progress_lines

__all__ = ["FOLDER", "NOT_KEPT", "lines", "outputs"]

FOLDER = Path(__file__).resolve().parent / "kept_outputs"
NOT_KEPT = {
    "record": "it runs a program of PyTorch, whose version chooses the operators",
    "hang": "it needs dumps of a flight recorder, which tests/hangs makes",
    "rerun": "it prints times of this machine",
}
_ROOT = Path(__file__).resolve().parents[1]
_MOST_ROWS = 4  # of a list
_MOST_LINES = 150  # of text
_MASKED = re.compile(
    r"(^|_)(seconds|version|versions|command|host|path|paths|file|files|folder|memory_peak)$"
)
_PLAN = 'model = "gpt3-125m"\ntp = 2\nglobal_batch = 4\nsequence = 1024\n'


def lines() -> dict[str, tuple[list[str], bool]]:
    """Give the arguments of each kept line by its name, and whether it has JSON, too."""
    found = {}
    for line in (FOLDER / "lines.txt").read_text().splitlines():
        name, _, command = line.partition(": ")
        given = command.removesuffix(" {json}")
        found[name] = shlex.split(given), given != command
    return found


def outputs() -> Iterator[tuple[str, str]]:
    """Run all lines; yields the name of each kept file and its content."""
    with TemporaryDirectory() as folder, contextlib.chdir(folder):
        _write_files()
        for name, (given, has_json) in lines().items():
            yield f"{name}.txt", _kept_text(_printed(given), folder)
            if has_json:
                again = ["--overwrite"] if "-o" in given else []
                printed = json.loads(_printed([*given, "--json", *again]))
                kept = json.dumps(_kept_value(printed, folder), indent=1)
                yield f"{name}.json", kept + "\n"


def _write_files() -> None:
    Path("demo").symlink_to(Path(nadi.__file__).resolve().parent / "data" / "demo")
    Path("estimate").symlink_to(_ROOT / "examples" / "estimate")
    Path("key").write_bytes(b"sixteen bytes or more")
    Path("jobs.csv").write_text(
        "job,family,layers,hidden,sequence,dp,global_batch\ndemo,gpt,2,128,8,4,4\n"
    )
    Path("plan.toml").write_text(_PLAN)
    Path("device.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": [*_events()]}))


def _events() -> Iterator[dict[str, Any]]:
    """Yield a step of five products and two collectives, on two streams."""

    def event(name: str, category: str, start: int, length: int, tid: int, **args: Any) -> Any:
        return {"ph": "X", "name": name, "cat": category, "ts": start, "dur": length, "pid": 1,
                "tid": tid, "args": args}  # fmt: skip

    yield event("ProfilerStep#1", "user_annotation", 0, 900, 1)
    for number in range(7):
        start, is_collective = 100 * number, number in (3, 5)
        operator = "c10d::allreduce_" if is_collective else "aten::mm"
        kernel = "ncclDevKernel_AllReduce_Sum" if is_collective else "sm90_gemm"
        shapes = {} if is_collective else {"Input Dims": [[512, 1024], [1024, 256]],
                                           "Input type": ["float", "float"]}  # fmt: skip
        yield event(operator, "cpu_op", start, 60, 1, **{"External id": number, **shapes})
        yield event("cudaLaunchKernel", "cuda_runtime", start + 20, 10, 1, correlation=number)
        yield event(kernel, "kernel", start + 50 + 15 * number, 90, 7 + is_collective,
                    stream=7 + is_collective, device=0, correlation=number)  # fmt: skip


def _printed(given: list[str]) -> str:
    """Run a command; returns what it printed."""
    out, complaint = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(complaint):
        code = main(given)
    if code not in (0, 1):
        raise RuntimeError(f"nadi {shlex.join(given)}: {complaint.getvalue()}")
    return out.getvalue()


def _kept_text(text: str, folder: str) -> str:
    """Mask what differs in text, and shorten it."""
    text = _masked(text, folder)
    whole = text.splitlines(keepends=True)
    if len(whole) > _MOST_LINES:
        rest = len(whole) - _MOST_LINES
        return "".join(whole[:_MOST_LINES]) + f"... {rest} lines, {_digest(text)}\n"
    return text


def _kept_value(value: Any, folder: str) -> Any:
    """Mask what differs in JSON, round numbers, and shorten lists."""
    if isinstance(value, dict):
        return {
            key: "masked" if _MASKED.search(key) else _kept_value(inner, folder)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        inner = [_kept_value(one, folder) for one in value]
        if len(inner) > _MOST_ROWS + 1:
            rest = f"... {len(inner) - _MOST_ROWS} rows, {_digest(json.dumps(inner))}"
            return [*inner[:_MOST_ROWS], rest]
        return inner
    if isinstance(value, float):  # the last digits depend on how a processor adds up
        return float(f"{value:.9g}")
    return _masked(value, folder) if isinstance(value, str) else value


def _masked(text: str, folder: str) -> str:
    return text.replace(f"/private{folder}", "FOLDER").replace(folder, "FOLDER")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


if __name__ == "__main__":
    progress_lines.BETWEEN = 3600.0
    for kept in (*FOLDER.glob("*.json"), *FOLDER.glob("*.txt")):
        if kept.name != "lines.txt":
            kept.unlink()
    for kept_name, content in outputs():
        (FOLDER / kept_name).write_text(content)
