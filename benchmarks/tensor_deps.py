"""Dependencies by tensors: how many, how many cross threads, and what they cost.

Usage: python benchmarks/tensor_deps.py [whole]

With ``whole`` also times link and .et of the largest pair as processes, with and without them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from _measure import SHARED, best_of, measure

import nadi
from nadi.trace.schema import TENSOR_DEPS

TRACES = SHARED / "traces"
PAIRS = [
    ("cpu_mlp", "host", "device"), ("cpu_transformer4", "host", "device"),
    ("cpu_transformer_mid", "host", "device"), ("cpu_transformer_big", "host", "device"),
    ("cpu_ddp4", "host_0", "device_0"), ("gpu_resnet_pair", "host", "device"),
    ("gpu_simple_add_pair", "host", "device"),
]  # fmt: skip
HOSTS = ["gpu_dlrm8/host_0", "et_only/gpt2_1.1.0", "et_only/nccl_1.0.2", "et_only/pt2_1.1.1",
         "et_only/resnet_2gpu_1.1.0"]  # fmt: skip
_WHOLE = """
import sys, nadi
host, device, tensors, target = sys.argv[1:]
trace = nadi.link_pair(nadi.read(host), nadi.read(device), tensors=tensors == "1")
nadi.write(trace, target)
"""


def report(name: str, host: nadi.Trace, linked: nadi.Trace | None) -> None:
    """Print a line on one trace; threads are known of pairs only."""
    deps = nadi.recordings.tensor_deps(linked or host)
    counts = [int((deps["kind"] == kind).sum()) for kind in TENSOR_DEPS]
    seconds = best_of(lambda: nadi.recordings.tensor_deps(host))
    across = "-"
    if linked is not None:
        thread = linked.column("thread")
        across = (
            f"{int((thread[deps['src'].to_numpy()] != thread[deps['dst'].to_numpy()]).sum()):,}"
        )
    print(f"| {name} | {host.nodes.height:,} | " + " | ".join(f"{n:,}" for n in counts)
          + f" | {across} | {1e3 * seconds:.0f} ms |")  # fmt: skip


def main() -> None:
    print("| trace | host nodes | raw | war | waw | across threads | time |")
    print("|---|---|---|---|---|---|---|")
    for folder, host_name, device_name in PAIRS:
        host, device = (
            nadi.read(TRACES / folder / f"{name}.json.gz") for name in (host_name, device_name)
        )
        report(folder, host, nadi.link_pair(host, device))
    for name in HOSTS:
        report(name, nadi.read(TRACES / f"{name}.json.gz"), None)
    if "whole" in sys.argv[1:]:
        folder = TRACES / "cpu_transformer_big"
        place = tempfile.TemporaryDirectory()
        target = Path(place.name) / "linked.et"
        for tensors in "10":
            files = [str(folder / f"{name}.json.gz") for name in ("host", "device")]
            found = measure([sys.executable, "-c", _WHOLE, *files, tensors, str(target)], runs=5)
            # the peak is that of the command with tensors, which comes first
            print(f"link and .et, {'with' if tensors == '1' else 'without'} tensors: {found}")
        place.cleanup()


if __name__ == "__main__":
    main()
