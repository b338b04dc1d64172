"""``nadi serve`` against runs of vLLM, published points, and a slow reference.

    python verification/serving.py [PARTS] (reference, profile, priced, light, silicon, tiers)

``reference``: 1,000 drawn cases, equal to ``tests/reference/serving.py`` to the nanosecond.
``profile``: a run on an RTX 4090 with its measured times of layers. ``priced``: runs of which only
model and system are known. ``light``: their first requests, before queues form. ``silicon``:
published points of closed loops. ``tiers``: measured copies and hits of keys and values.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from _report import SHARED, Checks, Tally, run_parts

import nadi
from nadi.serving import ServedRequests, Serving, serve_on_engines

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

FIELD = SHARED / "field" / "serving"
PROFILE = "profile_profiler_perf_RTX4090_meta-llama_Llama-3.1-8B_bf16_tp1"
LEVELS = (50, 90, 95, 99)
WARM = slice(10, 40)  # steps 1 and 2 of a run take 0.4 s more; later requests wait for others


class Measured:
    """A run of vLLM, request by request, in ns."""

    def __init__(self, folder: str) -> None:
        lines = (FIELD / folder / "requests.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines if line.strip()]
        self.queued, self.first, self.last = (
            np.array([row[f"{name}_ts"] for row in rows]) * 1e9
            for name in ("queued", "first_token", "last_token")
        )
        self.output = np.array([row["output_toks"] for row in rows])

    @property
    def rate(self) -> float:
        """Generated tokens a second."""
        return float(self.output.sum()) / (self.last.max() - self.queued.min()) * 1e9


def metrics(run: Measured | ServedRequests) -> list[np.ndarray]:
    """Give TTFT, TPOT and latency of requests, since the engine saw them."""
    gaps = np.maximum(run.output - 1, 1)
    return [run.first - run.queued, (run.last - run.first) / gaps, run.last - run.queued]


def errors(run: ServedRequests, measured: Measured) -> np.ndarray:
    """Give the errors of mean and percentiles of each metric in percent: shape (3, 5)."""
    summed = [
        [[one.mean(), *np.percentile(one, LEVELS)] for one in metrics(which)]
        for which in (run, measured)
    ]
    return (np.array(summed[0]) / np.array(summed[1]) - 1) * 100


def compare(what: str, found: Serving, measured: Measured, mean: float, rate: float,
            checks: Checks) -> None:  # fmt: skip
    """Check the mean error of 15 values, and the rate."""
    run = found.runs[0]
    off = errors(run, measured)
    print(f"  {what}: TTFT, TPOT, latency by mean, P50, P90, P95, P99, in percent")
    for row in off:
        print("   ", " ".join(f"{value:+7.2f}" for value in row))
    seconds = (run.last.max() - run.queued.min()) / 1e9
    relative = float(run.output.sum()) / seconds / measured.rate - 1
    checks.add(f"{what}: mean error of 15 values under {mean} %", np.abs(off).mean() < mean,
               f"{np.abs(off).mean():.2f} %, largest {np.abs(off).max():.2f} %")  # fmt: skip
    checks.add(f"{what}: generated tokens a second within {100 * rate} %", abs(relative) < rate,
               f"{100 * relative:+.2f} %")  # fmt: skip


def reference(checks: Checks) -> None:
    """Compare kernels with the slow reference."""
    from tests.reference.serving import Server
    from tests.serving.drawn import drawn_case

    tally, put_out, loaded = Tally(), 0, 0
    for seed in range(1000):
        requests, rules, times = drawn_case(seed)
        found = serve_on_engines(requests, rules, times)
        slow = Server(requests, rules, times)
        slow.serve()
        is_equal = all(
            getattr(found, name).tolist() == [getattr(one, name) for one in slow.requests]
            for name in ("queued", "first", "last", "hits", "put_out")
        )
        tally.add(exact=is_equal, detail=f"seed {seed}")
        put_out += found.instances["put_out"].sum() > 0
        loaded += found.instances["loaded_tokens"].sum() > 0
    checks.add_tally("drawn cases equal to the slow reference", tally)
    checks.add("many of them put requests out, and load blocks", min(put_out, loaded) > 300,
               f"{put_out} and {loaded} of 1,000")  # fmt: skip


def profile(checks: Checks) -> None:
    """Serve the run of the RTX 4090 with measured times of layers, and its number of blocks."""
    found = nadi.serve(
        "llama3-8b", "rtx-4090-workstation", measured=str(FIELD / PROFILE), blocks=2587,
        requests=str(FIELD / "sharegpt-llama-3.1-8b-300-sps10.jsonl.gz"),
    )  # fmt: skip
    compare("RTX 4090, profile", found, Measured("RTX4090_Llama-3.1-8B"), 0.4, 0.005, checks)


if __name__ == "__main__":
    run_parts({"reference": reference, "profile": profile})
