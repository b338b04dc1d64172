"""Write what kernels each command calls: ``python wheels/list_kernels.py``, after they changed.

It runs commands on the recording that comes with Nadi, and writes
``src/nadi/kernels/known_kernels.json``. With it a first run compiles on two cores, its bar knows
how many there are, and a wheel carries them. A command calls what is not listed all the same.

Of each command those come first that most of the lines here call: what only some options or
inputs need is not waited for by others.
"""

from __future__ import annotations

import json
import pickle
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.formats.foreign_files import (  # noqa: E402
    inspector_log,
    memory_snapshot,
    nsight_export,
    pftrace,
    rocprof_object,
    xplane,
)

DEMO = ROOT / "src" / "nadi" / "data" / "demo"
LIST = DEMO.parents[1] / "kernels" / "known_kernels.json"
COMMANDS = """
demo
run {demo}
run {demo} --what-if='scale gloo:all_reduce 0.5' --step=1 --system=dgx-h100 -o {made}/run
report {demo} -o {made}/page.html
critical-path {demo} --json
critical-path {made}/device.json --rules=hta --json
info {made}/device.json
simulate {demo} --system=dgx-h100 -o {made}/simulated.pftrace
simulate {made}/device.json --system=dgx-h100
link {demo} -o {made}/linked
link {demo} -o {made}/astra --for=astra-sim
simulate {made}/linked --system=dgx-h100
what-if {demo} 'scale gloo:all_reduce 0.5'
what-if {demo} --reorder
waits {demo}
extract {demo} --step=1 -o {made}/part
analyze all {demo} --json
analyze all {made}/device.json --json
diff {demo} {demo} --json
info {demo} {made}/linked
info {demo} {made}/linked --check
convert {demo} {made}/chakra --to=chakra
convert {demo} {made}/perfetto --to=perfetto
convert {demo} {made}/kineto --to=kineto
convert {demo} {made}/nadi --to=nadi
convert {made}/linked {made}/json --to=chakra-json
convert {made}/json {made}/again --to=chakra
generate cases -o {made}/cases
serve llama3-8b hgx-h200 --rate=4 --number=20 --input=200 --output=20
loggp {demo} --latency=2us --overhead=1us --gap=0ns --gap-per-byte=50GB/s
"""
# engines of systems that few describe, and files of other tools: wheels carry them, and no first
# run compiles them ahead
SELDOM = """
simulate {demo} --system={made}/lifo.toml
simulate {demo} --system={made}/queues.toml
memory place {examples}/estimate/step-8b.toml --system=dgx-h100 --memory=16 --bandwidth=64
info {made}/export.sqlite {made}/rocprof.json {made}/plane.xplane.pb {made}/torch.pftrace
analyze memory-holders {made}/snapshot.pickle
collective measured --measured={made}/inspector.log --system=dgx-h100
"""
SYSTEM = DEMO.parent / "systems" / "dgx-h100.toml"
LIFO = 'slots = "device"', 'slots = "device"\npolicy = "lifo"'
QUEUES = "[[network.dimensions]]", "[network]\ncongestion = true\n\n[[network.dimensions]]"
# the recording that comes with Nadi has no device: a step that launches one kernel
EVENTS = [
    ("X", "user_annotation", "ProfilerStep#1", 1, 1, 0.0, 90.0, {}),
    ("X", "cpu_op", "aten::mm", 1, 1, 1.0, 40.0, {"External id": 1}),
    ("X", "cuda_runtime", "cudaLaunchKernel", 1, 1, 5.0, 4.0, {"correlation": 7}),
    ("X", "kernel", "gemm", 0, 7, 20.0, 30.0, {"correlation": 7, "stream": 7, "device": 0}),
    ("X", "cuda_runtime", "cudaDeviceSynchronize", 1, 1, 50.0, 30.0, {"correlation": 8}),
]
FOREIGN = {
    "export.sqlite": nsight_export(),
    "rocprof.json": json.dumps(rocprof_object()).encode(),
    "plane.xplane.pb": xplane(),
    "torch.pftrace": pftrace(),
    "snapshot.pickle": pickle.dumps(memory_snapshot(), 4),
    "inspector.log": inspector_log(),
}
NAMES = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args")
PROBE = """
import json, sys
import nadi
from nadi.cli import main
from nadi.kernels import kernel_cache, jit
from nadi.kernels.signatures import as_lists

if sys.argv[1] == "feeder":  # for programs, no command
    for ending in (False, True):
        feeder = nadi.ETFeeder(sys.argv[2])
        while feeder.has_nodes_to_issue():
            batch = feeder.drain(ending=ending)
            if not ending:
                feeder.release(batch)
else:
    assert main(sys.argv[1:]) == 0
found = []
for module, name, types in jit.in_use():
    kept = kernel_cache.find_kernel(module, kernel_cache.entry_of(module, name, types))
    found.append([module, name, as_lists(types), len(kept.code)])
sys.stdout.write("\\n" + json.dumps(found))
"""


def calls_of(arguments: list[str]) -> list[tuple[str, int]]:
    """Give the kernels that a command calls, as JSON, and the size of the code of each."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments], stdout=subprocess.PIPE, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return [(json.dumps(kernel, separators=(",", ":")), size) for *kernel, size in found]


def main() -> None:
    """Run every command, and write the list."""
    uses: dict[str, Counter[str]] = {}
    sizes: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as made:
        events = [dict(zip(NAMES, event, strict=True)) for event in EVENTS]
        device = {"schemaVersion": 1, "traceEvents": events}
        (Path(made) / "device.json").write_text(json.dumps(device))
        for name, content in FOREIGN.items():
            (Path(made) / name).write_bytes(content)
        for name, (old, new) in (("lifo", LIFO), ("queues", QUEUES)):
            described = SYSTEM.read_text().replace(old, new, 1)
            (Path(made) / f"{name}.toml").write_text(described)
        often, seldom = (
            lines.format(demo=DEMO, made=made, examples=ROOT / "examples").strip().splitlines()
            for lines in (COMMANDS, SELDOM)
        )
        often.append(f"feeder {made}/linked/rank0.et")
        for line in (*often, *seldom):
            arguments = shlex.split(line)
            use = "reorder" if "--reorder" in arguments else arguments[0]
            use = "seldom" if line in seldom else use
            print("nadi", *arguments)
            for kernel, size in calls_of(arguments):
                uses.setdefault(use, Counter())[kernel] += 1
                sizes[kernel] = size
    # what is large takes long to compile
    kernels = sorted(sizes, key=lambda kernel: (-sizes[kernel], kernel))
    listed = ",\n".join(kernels)
    places = {
        use: sorted(map(kernels.index, called), key=lambda i: (-called[kernels[i]], i))
        for use, called in sorted(uses.items())
    }
    named = ",\n".join(f"{json.dumps(use)}: {json.dumps(at)}" for use, at in places.items())
    LIST.write_text(f'{{"kernels": [\n{listed}\n],\n"uses": {{\n{named}\n}}}}\n')
    print(f"wrote {len(kernels)} kernels")


if __name__ == "__main__":
    main()
