"""How long a million requests take, and a thousand instances.

    python benchmarks/serving.py [REQUESTS]

Llama 3 8B on H200 with priced steps, on one core; kernels are compiled before. Fails if a million
requests take a minute or more.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import nadi
from nadi.serving import SERVING

MOST_SECONDS = 60.0  # of the processor, for a million requests
LENGTHS: dict[str, Any] = {"input": 1024, "output": 128, "spread": 0.5}


def seconds(**setup: Any) -> float:
    """Serve; print what came of it, and return the seconds of the processor."""
    begin = time.process_time()
    data = SERVING.data(nadi.serve("llama3-8b", "hgx-h200", **LENGTHS, **setup))
    took = time.process_time() - begin
    print(f"{data['requests']:,} requests, {data['devices']:,} devices: {data['steps']:,} steps, "
          f"{took:.1f} s")  # fmt: skip
    return took


if __name__ == "__main__":
    number = int(sys.argv[1]) if sys.argv[1:] else 1_000_000
    seconds(rate=25, number=1000)
    took = seconds(rate=25, number=number)
    seconds(rate=2500, number=100_000, replicas=1000)
    sys.exit(took * 1e6 / number >= MOST_SECONDS)
