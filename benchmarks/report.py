"""``nadi report``: the largest recording at hand in 5 s, a million events in 10 s; in a browser.

Usage: python benchmarks/report.py [FOLDER]

In headless Chromium, if it is installed: how long a page takes until its timeline is drawn, and how
long a frame takes while it is zoomed and panned. Under 3 s, and 33 ms.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

from _measure import SHARED, measure, nadi

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.report.headless_browser import open_browser, why_absent

OPERATORS = 250_000  # each with an inner one, a launch and a kernel
STEPS = 50
MOVE = """
const times = [];
for (let i = 0; i < 120; i++) {
  if (i % 3 === 0) T.view.pan(37); else T.view.zoom(i < 60 ? 0.85 : 1 / 0.85);
  const begun = performance.now();
  T.view.draw();
  times.push(performance.now() - begun);
}
times.sort((a, b) => a - b);
return [times[60], times[114], times[119]];
"""


def write_events(path: Path) -> int:
    """Write a device trace of a training loop; gives the number of its events."""
    source = random.Random(1)
    lines, now, device = [], 0.0, 0.0

    def add(category: str, name: str, thread: int, start: float, lasts: float, args: str) -> None:
        process = 0 if category == "kernel" else 1
        lines.append(
            f'{{"ph":"X","cat":"{category}","name":"{name}","pid":{process},"tid":{thread},'
            f'"ts":{start:.3f},"dur":{lasts:.3f},"args":{{{args}}}}}'
        )

    for number in range(OPERATORS):
        step, place = divmod(number, OPERATORS // STEPS)
        if place == 0:
            begun = now
        start, launch = now, now + source.uniform(1, 4)
        now = launch + source.uniform(2, 5)
        device = max(device, now + 2)
        lasts = source.expovariate(1 / 6) + 1
        call = f'"External id":{number},"correlation":{number}'
        add("cuda_runtime", "cudaLaunchKernel", 1, launch, now - launch, call)
        add("kernel", f"kernel_{number % 60}", 7, device, lasts, f'{call},"stream":7,"device":0')
        device += lasts + 0.5
        now += source.uniform(0.5, 2)
        add("cpu_op", f"aten::op{number % 40}", 1, start, now - start, "")
        add("cpu_op", f"aten::in{number % 7}", 1, start + 0.2, 0.8 * (launch - start), "")
        if place == OPERATORS // STEPS - 1:
            now = max(now, device) + 5
            add("user_annotation", f"ProfilerStep#{step}", 1, begun, now - begun, "")
    events = ",\n".join(lines)
    path.write_text(f'{{"schemaVersion":1,"traceEvents":[{events}]}}')
    return len(lines)


def browse(page: Path) -> None:
    if why := why_absent():
        print(why)
        return
    with open_browser() as browser:
        browser.size(1440, 900)
        browser.open(page)
        opened = browser.run(
            "return performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
        )
        number, unpacked = browser.run("return [T.data.size, T.openTime]")
        median, most, slowest = browser.run(MOVE)
    print(f"  in Chromium: {number:,} events; read {opened / 1e3:.2f} s, timeline drawn after "
          f"another {unpacked / 1e3:.2f} s; a frame takes {median:.1f} ms, 19 of 20 at most "
          f"{most:.1f} ms, the slowest {slowest:.1f} ms")  # fmt: skip


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else str(SHARED / "traces/cpu_transformer_big")
    measure(nadi("demo", "--report", f"{tempfile.mkdtemp()}/demo.html"), runs=1)  # kernels
    with tempfile.TemporaryDirectory() as output:
        page = Path(output) / "page.html"
        million = Path(output) / "million.json"
        number = write_events(million)
        for name, source in ((Path(folder).name, folder), (f"{number:,} events", str(million))):
            alone = measure(nadi("run", source))
            print(f"nadi run {name}: {alone}")
            found = measure(nadi("report", source, "-o", str(page), "--overwrite"))
            print(f"nadi report {name}: {found}, page of {page.stat().st_size / 1e6:.2f} MB")
            browse(page)


if __name__ == "__main__":
    main()
