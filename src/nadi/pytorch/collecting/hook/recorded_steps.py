"""Record some steps with the profiler alone, and then as many with the observer.

The execution trace observer makes operators take several times as long, so the times are of steps
without it. Meanwhile stacks of Python are sampled. Standard library only, as all of this folder.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Collection
from types import CodeType
from typing import Any

_TIMED, _OBSERVED, _ENDED = "timed", "observed", "ended"
_ROOM = 1 << 16  # bytes
_MARK = "ProfilerStep#"
_TIME = re.compile(r'\s*"ts": ([\d.]+)')
_EVENTS = b'"traceEvents": ['
_COMPRESSION = 6  # of gzip, which takes most of the time of writing
_ALL_THREADS_SINCE = (2, 9)
"""PyTorch that profiles threads which the program started before, without a crash at the end."""
_observed: set[str] = set()  # files that observers of this process write


def _leave_observed_files() -> None:
    """Let what a forked process, such as one of a data loader, observes go nowhere.

    It inherits the observer, the file and what of it is not written yet.
    """
    with contextlib.suppress(OSError):
        nodes = {os.stat(path).st_ino for path in _observed}
        for number in map(int, os.listdir("/dev/fd") if nodes else ()):
            with contextlib.suppress(OSError):
                if os.fstat(number).st_ino in nodes:
                    os.dup2(os.open(os.devnull, os.O_WRONLY), number)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_observed_files)


class StepTimer:
    """Measures steps of the thread that calls it, ns.

    Attributes
    ----------
    lengths
        How long each step took.
    ready
        For how much of each its thread was ready while others ran; empty if the system does not
        say so.
    slept
        For how much of each its thread neither ran nor was ready; empty as ``ready``.
    """

    def __init__(self) -> None:
        self.lengths: list[int] = []
        self.ready: list[int] = []
        self.slept: list[int] = []
        self._begun: tuple[int, int, int | None, int] | None = None

    def begin(self) -> None:
        """Begin a step."""
        ready, unsure = _ready_ns()
        self._begun = time.perf_counter_ns(), time.thread_time_ns(), ready, unsure

    def end(self) -> None:
        """End the step; nothing if none has begun."""
        if self._begun is None:
            return
        since, ran_since, ready_since, unsure_since = self._begun
        self.lengths.append(time.perf_counter_ns() - since)
        ran = time.thread_time_ns() - ran_since
        ready, unsure = _ready_ns()
        if ready is not None and ready_since is not None:
            idle = max(self.lengths[-1] - ran, 0)
            self.ready.append(min(max(ready - ready_since - unsure_since - unsure, 0), idle))
            self.slept.append(idle - self.ready[-1])
        self._begun = None

    def forget(self) -> None:
        """Leave out the step that has begun."""
        self._begun = None


def _ready_ns() -> tuple[int | None, int]:
    """Return for how long this thread was ready while others ran, and what of it is not sure.

    It may have to wait while it reads this, outside of a step.
    """
    begun, ran = time.perf_counter_ns(), time.thread_time_ns()
    times = _sampled_gaps().scheduled_ns(threading.get_native_id())
    idle = time.perf_counter_ns() - begun - (time.thread_time_ns() - ran)
    return times and times[1], max(idle, 0)


class StepRecorder:
    """Records steps; whoever makes it says when one ends.

    Attributes
    ----------
    timed, observed
        The steps that were recorded with the profiler, and with the observer.
    """

    def __init__(self, torch: Any, folder: str, options: dict[str, Any]) -> None:
        self.timed, self.observed = StepTimer(), StepTimer()
        self._torch = torch
        self._options = options
        self._host = os.path.join(folder, "host.json")
        self._device = os.path.join(folder, "device.json")
        self._phase = ""
        self._profiler: Any = None
        self._observer: Any = None
        self._range: Any = None  # that of the step, while it is observed
        self._sampled: Any = None  # while steps are observed: the sampler, and a profiler beside it
        self._spans: list[Any] = []  # operations of the timed steps
        self._samples: Any = None  # the sampler when it has ended
        self._sampled_spans: list[Any] = []  # operations of the steps that were sampled
        self._tracer: Any = None  # of calls in every second of these steps, the last among them
        self._garbage = _beside("garbage_timer").GarbageTimer()  # of the timed steps

    @property
    def has_ended(self) -> bool:
        """Whether all that was asked for is recorded."""
        return self._phase == _ENDED

    def start(self) -> None:
        """Start the profiler: the next step warms it up, and those after it are recorded."""
        _sampled_gaps()  # loaded now, and not by the first step that is timed
        self._profiler = _profiler(self._torch, self._device, self._options)
        self._profiler.start()
        self._phase = _TIMED

    def step(self) -> None:
        """Take the end of a step."""
        if self._phase == _TIMED:
            self._end_timed()
        elif self._phase == _OBSERVED:
            self._end_observed()
        if self._phase == _TIMED:
            with _sampled_gaps().quick_turns():
                self.timed.begin()
            self._garbage.start()
        elif self._phase == _OBSERVED:
            self.observed.begin()

    def _end_timed(self) -> None:
        self._garbage.stop()
        with _sampled_gaps().quick_turns():
            self.timed.end()  # of the step that warms the profiler up, nothing
            self._profiler.step()
        if len(self.timed.lengths) >= self._options["steps"]:
            timed = self._profiler
            self._stop_profiler()
            self._observer = self._torch.profiler.ExecutionTraceObserver()
            self._observer.register_callback(self._host)
            self._observer.start()
            _observed.add(self._host)
            self._phase = _OBSERVED
            self._start_samples(timed)
            self._mark()

    def _end_observed(self) -> None:
        self.observed.end()
        self._end_mark()
        if self._tracer is not None:
            self._tracer.stop()
        if len(self.observed.lengths) >= self._options["steps"]:
            self.stop()
        else:
            self._mark()

    def _mark(self) -> None:
        """Begin the range of a step, as the profiler names it."""
        number = len(self.timed.lengths) + len(self.observed.lengths) + 1
        self._range = self._torch.profiler.record_function(f"{_MARK}{number}")
        self._range.__enter__()
        if self._tracer is not None and (self._options["steps"] - len(self.observed.lengths)) % 2:
            self._tracer.start()

    def _end_mark(self) -> None:
        begun, self._range = self._range, None
        if begun is not None:
            begun.__exit__(None, None, None)

    def _stop_profiler(self) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            profiler.stop()

    def stop(self) -> None:
        """Stop whatever records; the observer has to be unregistered, or no other can be."""
        self._phase = _ENDED
        self._stop_profiler()
        self._end_mark()
        if self._tracer is not None:
            self._tracer.stop()
        self._end_samples()
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.stop()
            observer.unregister_callback()
            _observed.discard(self._host)

    def _start_samples(self, timed: Any) -> None:
        """Sample stacks of Python, and record operations with them, to know where they belong."""
        if self._options["stacks"]:
            return
        with contextlib.suppress(Exception):  # what is sampled is a help, and no more
            self._spans = _sampled_gaps().spans_of(timed.profiler.kineto_results)
            # a second session with all threads writes over memory in PyTorch 2.13: 8 of 18 runs of
            # a program with a compiled optimizer ended with a segmentation fault
            config = _experimental(self._torch, self._options, ["cpu"], is_first=False)
            profiler = self._torch.autograd.profiler.profile(use_kineto=True, **config)
            lengths = sorted(self.timed.lengths)
            sampler = _sampled_gaps().StackSampler(lengths[len(lengths) // 2])
            profiler.__enter__()
            sampler.start()
            self._sampled = sampler, profiler
            of_program = _sampled_gaps().is_of_program
            self._tracer = _beside("traced_calls").CallTracer(of_program, _call_of(self._torch))

    def _end_samples(self) -> None:
        if self._sampled is None:
            return
        (sampler, profiler), self._sampled = self._sampled, None
        sampler.stop()
        profiler.__exit__(None, None, None)
        with contextlib.suppress(Exception):
            self._sampled_spans = _sampled_gaps().spans_of(profiler.kineto_results)
            self._samples = sampler

    def write(self, host: str, device: str, unrecorded: StepTimer) -> list[str]:
        """Write what is recorded, if a step is; ``unrecorded`` has steps without a recorder.

        Returns the files that were written; there is no host trace if no step was observed. It
        may be called again, when more is known of steps without a recorder. OSError if the disk is
        full: PyTorch does not say so where it writes its traces.
        """
        if not self.timed.lengths:
            return []
        room = self._part_of("room")
        with open(room, "wb") as file:  # fails if the disk was full, as long as traces lie there
            file.write(bytes(_ROOM))
        os.remove(room)
        about = {
            "host_trace": "of later steps" if self.observed.lengths else "none",
            **self.lengths(unrecorded),
        }
        written = [*([host] if self.observed.lengths else []), device]
        named = self._named_events() if self._sampled_spans else []
        _write_with("nadi", about, named, self._device, self._part_of(device))
        if self.observed.lengths:
            shutil.copyfile(self._host, self._part_of(host))
        for path in written:  # both are whole now, or neither appears
            os.replace(self._part_of(path), path)
        return written

    def lengths(self, unrecorded: StepTimer) -> dict[str, list[int]]:
        """Return what is written of the lengths of steps, ns."""
        return {
            "timed_ns": self.timed.lengths, "ready_ns": self.timed.ready,
            "observed_ns": self.observed.lengths,
            "unrecorded_ns": unrecorded.lengths, "unrecorded_ready_ns": unrecorded.ready,
        }  # fmt: skip

    def _named_events(self) -> list[dict[str, Any]]:
        """Make events of what Python does around operations; none if the file has another form."""
        with contextlib.suppress(Exception), open(self._device) as file:
            first = min(one for one in self._spans if one.name.startswith(_MARK))
            for line in file:
                if f'"name": "{first.name}"' in line:
                    time = next(filter(None, map(_TIME.match, file)))
                    base = first.begin - round(1000 * float(time[1]))
                    gaps = _sampled_gaps()
                    found = self._samples.samples, self._sampled_spans
                    names = gaps.name_gaps(*found, self._samples.every_ns)
                    garbage = gaps.garbage_spans(self._garbage.collections, self._spans)
                    waits = gaps.lock_waits(*found, self._spans, self.timed.slept, names, garbage)
                    return [
                        *gaps.name_operations(self._tracer.calls, found[1], self._spans, base),
                        *gaps.named_events([*self._spans, *waits, *garbage], names, base),
                        *gaps.wait_events([*waits, *garbage], base),
                    ]
        return []

    def _part_of(self, path: str) -> str:
        """Name a file that is not whole yet: in a folder that is removed in the end."""
        return os.path.join(os.path.dirname(self._host), os.path.basename(path) + ".part")


def _write_with(
    key: str, value: Any, events: list[dict[str, Any]], source: str, target: str
) -> None:
    """Compress a JSON object to a file, with one member more, which comes first, and events."""
    with open(source, "rb") as read, gzip.open(target, "wb", _COMPRESSION) as out:
        begin = read.readline().lstrip() or read.readline().lstrip()
        out.write(f"{{{json.dumps(key)}: {json.dumps(value)},\n".encode())
        out.write(begin.removeprefix(b"{"))
        for line in read if events else ():
            out.write(line)
            if line.strip() == _EVENTS:
                out.write(b"".join(json.dumps(event).encode() + b",\n" for event in events))
                break
        shutil.copyfileobj(read, out, 1 << 20)


def _sampled_gaps() -> Any:
    return _beside("sampled_gaps")


def _beside(name: str) -> Any:
    """Import a module beside this one: in the recorded process none has a package."""
    return importlib.import_module(f"{__package__ or ''}.{name}".lstrip("."))


def _call_of(torch: Any) -> CodeType:
    """Return the function of PyTorch that calls a module; older versions have one of two."""
    module = torch.nn.Module
    found: CodeType = getattr(module, "_wrapped_call_impl", module._call_impl).__code__
    return found


def _profiler(torch: Any, device: str, options: dict[str, Any]) -> Any:
    """Make a profiler that skips one step and writes its file when it has recorded the others."""
    of_torch = torch.profiler
    activities = of_torch.supported_activities()
    return of_torch.profile(
        activities=activities,
        schedule=of_torch.schedule(wait=0, warmup=1, active=options["steps"], repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(device),
        record_shapes=options["shapes"], with_stack=options["stacks"],
        with_modules=options["stacks"], profile_memory=options["memory"],
        **_experimental(torch, options, activities),
    )  # fmt: skip


def _experimental(
    torch: Any, options: dict[str, Any], activities: Collection[Any], *, is_first: bool = True
) -> dict[str, Any]:
    """Return the settings of a profiler that not all versions of PyTorch have."""
    wanted = {
        "enable_cuda_sync_events": options["sync"],
        # they tell of which operation a kernel is, and are a sixth of the cost of each operation
        "disable_external_correlation": len(activities) == 1,
        # with it, PyTorch 2.13 leaves out every allocation
        "profile_all_threads": (
            is_first and _version(torch) >= _ALL_THREADS_SINCE and not options["memory"]
        ),
    }
    while wanted:
        try:
            return {"experimental_config": torch.profiler._ExperimentalConfig(**wanted)}
        except (AttributeError, TypeError):  # older versions have not all of them
            wanted.popitem()
    return {}


def _version(torch: Any) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", str(getattr(torch, "__version__", "")))
    return tuple(map(int, found.groups())) if found else (0, 0)
