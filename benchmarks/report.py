"""``nadi report``: the largest recording at hand in 5 s, a million events in 10 s; in a browser.

Usage: python benchmarks/report.py [FOLDER]

In headless Chromium, if it is installed: how long a page takes until its timeline is drawn (under
3 s), how long a frame takes while it is zoomed and panned and while an area is drawn and summed (19
of 20 under 33 ms), and how long a search takes (under 300 ms).
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
from pathlib import Path

from _measure import SHARED, measure, nadi

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.report.headless_browser import open_browser, why_absent

OPERATORS = 250_000  # each with an inner one, a launch and a kernel
STEPS = 50
USE = """
const sorted = (times) => times.sort((a, b) => a - b);
const timed = (act) => {
  const begun = performance.now();
  act();
  return performance.now() - begun;
};
const moves = [];
for (let i = 0; i < 120; i++) {
  moves.push(timed(() => {
    if (i % 3 === 0) T.view.pan(37); else T.view.zoom(i < 60 ? 0.85 : 1 / 0.85);
    T.view.draw();
  }));
}
T.view.show(...T.view.home);
const tracks = T.data.tracks.filter((t) => !t.counter && !t.isPath).map((t) => t.number);
const area = (i) => ({
  from: T.view.from, to: Math.round(T.view.from + i / 40 * (T.view.to - T.view.from)), tracks,
});
const areas = [];
for (let i = 1; i <= 40; i++) {
  areas.push(timed(() => { T.view.areas.drawn = area(i); T.view.draw(); }));
}
T.view.areas.drawn = null;
const sums = [];
for (let i = 1; i <= 40; i++) {
  sums.push(timed(() => { T.controls.area.choose(area(i)); T.view.draw(); }));
}
T.controls.area.choose(null);
const searches = ["a", "kernel_1", "aten::op", "/^aten::in[0-3]$/"].map(
  (text) => timed(() => { T.controls.search(text); T.view.draw(); }));
T.controls.search("");
return [sorted(moves), sorted(areas), sorted(sums), sorted(searches)];
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
        moves, areas, sums, searches = browser.run(USE)
    print(f"  in Chromium: {number:,} events; read {opened / 1e3:.2f} s, timeline drawn after "
          f"another {unpacked / 1e3:.2f} s")  # fmt: skip
    used = {"zoom and pan": moves, "a drag of an area": areas, "its sums, when it ends": sums}
    for what, times in used.items():
        most = times[math.ceil(0.95 * len(times)) - 1]
        print(f"    {what}: a frame takes {times[len(times) // 2]:.1f} ms, 19 of 20 at most "
              f"{most:.1f} ms, the slowest {times[-1]:.1f} ms")  # fmt: skip
    print(f"    a search: at most {searches[-1]:.0f} ms")


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
