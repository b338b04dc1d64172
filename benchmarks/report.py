"""``nadi report``: a large recording, a million events, 8 ranks of 200,000; in a browser.

Usage: python benchmarks/report.py [FOLDER]

In headless Chromium, if it is installed: how long a page takes until its timeline is drawn (under
3 s), how long a frame takes while it is zoomed and panned and while an area is drawn and summed (19
of 20 under 33 ms), and how long a search takes (under 300 ms). Frames and searches are CPU time of
the page's thread, from the event until the frame is drawn, so that what else runs does not count.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from _measure import SHARED, measure, nadi

from nadi.units import format_counted

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.report.headless_browser import open_browser, why_absent

STEPS = 50
BETWEEN = 250  # operators from collective to collective
USES = {  # what is done, how often, and the limit in ms
    "zoom and pan": (120, 33), "a drag of an area": (40, 33), "its sums, when it ends": (40, 33),
    "a search": (8, 300), "nothing": (15, 0),
}  # fmt: skip
USE = """
const tracks = T.data.tracks.filter((t) => !t.counter && !t.isPath).map((t) => t.number);
const area = (i) => ({
  from: T.view.from, to: Math.round(T.view.from + (i + 1) / 40 * (T.view.to - T.view.from)), tracks,
});
const texts = ["a", "kernel_1", "aten::op", "/^aten::in[0-3]$/"];
window.uses = {
  "zoom and pan": (i) => {
    if (i % 3 === 0) T.view.pan(37); else T.view.zoom(i < 60 ? 0.85 : 1 / 0.85);
  },
  "a drag of an area": (i) => { T.view.areas.drawn = area(i); T.view.request(); },
  "its sums, when it ends": (i) => T.controls.area.choose(area(i)),
  "a search": (i) => T.controls.search(texts[i % 4]),
  "nothing": () => {},
};
"""
DO = """
const [what, i, done] = arguments;
uses[what](i);
requestAnimationFrame(() => requestAnimationFrame(() => done()));
"""
LEAVE = """
T.view.areas.drawn = null;
T.controls.area.choose(null);
T.controls.search("");
T.view.show(...T.view.home);
"""


class Rank:
    """A device trace of a training loop that is written event by event; times are us."""

    def __init__(self, file: IO[str], rank: int, ranks: int) -> None:
        self.file, self.rank = file, rank
        self.source = random.Random(1)
        self.now = self.device = self.begun = 0.0
        self.number = 0
        about = f'"distributedInfo":{{"rank":{rank},"world_size":{ranks}}},' if ranks > 1 else ""
        file.write(f'{{"schemaVersion":1,{about}"traceEvents":[')

    def add(self, category: str, name: str, start: float, lasts: float, args: str = "") -> None:
        """Write an event."""
        process, thread = (0, 7) if category == "kernel" else (1, 1)
        self.file.write(
            f'{"," if self.number else ""}\n{{"ph":"X","cat":"{category}","name":"{name}",'
            f'"pid":{process},"tid":{thread},"ts":{start:.3f},"dur":{lasts:.3f},"args":{{{args}}}}}'
        )
        self.number += 1

    def launch(self, number: int, operator: str) -> str:
        """Write an operator, an inner one and its launch; gives the arguments of its kernel."""
        start, launch = self.now, self.now + self.source.uniform(1, 4)
        self.now = launch + self.source.uniform(2, 5) * (1 + 0.01 * self.rank)
        self.device = max(self.device, self.now + 2)
        call = f'"External id":{number},"correlation":{number}'
        self.add("cuda_runtime", "cudaLaunchKernel", launch, self.now - launch, call)
        self.now += self.source.uniform(0.5, 2)
        self.add("cpu_op", operator, start, self.now - start)
        self.add("cpu_op", f"aten::in{number % 7}", start + 0.2, 0.8 * (launch - start))
        return f'{call},"device":0,"stream":7'

    def mark(self, step: int) -> None:
        """Write a step that ends when the device has done its work."""
        self.now = max(self.now, self.device) + 5
        self.add("user_annotation", f"ProfilerStep#{step}", self.begun, self.now - self.begun)
        self.begun = self.now


def write_events(folder: Path, ranks: int, operators: int) -> int:
    """Write a device trace of each rank, with collectives between them; gives all events."""
    with ExitStack() as files:
        opened = [
            files.enter_context((folder / f"rank_{rank}.json").open("w")) for rank in range(ranks)
        ]
        every = [Rank(file, number, ranks) for number, file in enumerate(opened)]
        for number in range(operators):
            is_shared = ranks > 1 and number % BETWEEN == BETWEEN - 1
            name = "c10d::allreduce_" if is_shared else f"aten::op{number % 40}"
            calls = [one.launch(number, name) for one in every]
            last = max(one.device for one in every)
            for one, call in zip(every, calls, strict=True):
                start, lasts = one.device, one.source.expovariate(1 / 6) + 1
                kernel = f"kernel_{number % 60}"
                if is_shared:
                    kernel, lasts = "ncclDevKernel_AllReduce_Sum_f32_RING_LL", last + 20 - start
                one.add("kernel", kernel, start, lasts, call)
                one.device = start + lasts + 0.5
                if number % (operators // STEPS) == operators // STEPS - 1:
                    one.mark(number // (operators // STEPS))
        for file in opened:
            file.write("]}")
    return sum(one.number for one in every)


def browse(page: Path) -> None:
    if why := why_absent():
        print(why)
        return
    with open_browser() as browser:
        browser.size(1440, 900)
        browser.cdp("Performance.enable", {"timeDomain": "threadTicks"})

        def spent() -> float:
            """Give the CPU time of the page's thread so far, ms."""
            found = browser.cdp("Performance.getMetrics", {})["metrics"]
            return next(1e3 * one["value"] for one in found if one["name"] == "TaskDuration")

        browser.open(page)
        read = browser.run(
            "return performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
        )
        number, unpacked = browser.run("return [T.data.size, T.openTime]")
        print(f"  in Chromium: {number:,} events; read {read / 1e3:.2f} s, timeline drawn after "
              f"another {unpacked / 1e3:.2f} s; {spent() / 1e3:.2f} s CPU time")  # fmt: skip
        browser.run(USE)
        found = {}
        for what, (count, _) in USES.items():
            found[what] = []
            for i in range(count):
                begun = spent()
                browser.driver.execute_async_script(DO, what, i)
                found[what].append(spent() - begun)
            browser.run(LEAVE)
    nothing = statistics.median(found.pop("nothing"))  # what it takes to ask
    for what, times in found.items():
        times = sorted(max(one - nothing, 0) for one in times)
        most = times[math.ceil(0.95 * len(times)) - 1]
        print(f"    {what}: {statistics.median(times):.1f} ms, 19 of 20 at most {most:.1f} ms "
              f"(limit {USES[what][1]} ms), the slowest {times[-1]:.1f} ms")  # fmt: skip


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else str(SHARED / "traces/cpu_transformer_big")
    measure(nadi("demo", "--report", f"{tempfile.mkdtemp()}/demo.html"), runs=1)  # kernels
    with tempfile.TemporaryDirectory() as output:
        page = Path(output) / "page.html"
        inputs = {Path(folder).name: folder}
        for ranks, operators in ((1, 250_000), (8, 50_000)):
            place = Path(output) / f"{ranks}"
            place.mkdir()
            number = write_events(place, ranks, operators)
            inputs[f"{format_counted(ranks, 'rank')}, {number:,} events"] = str(place)
        for name, source in inputs.items():
            alone = measure(nadi("run", source))
            print(f"nadi run {name}: {alone}")
            found = measure(nadi("report", source, "-o", str(page), "--overwrite"))
            print(f"nadi report {name}: {found}, page of {page.stat().st_size / 1e6:.2f} MB")
            browse(page)


if __name__ == "__main__":
    main()
