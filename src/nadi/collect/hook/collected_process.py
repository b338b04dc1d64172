"""Record a few steps of the process that this runs in, without a change to its program.

Standard library only: the program may run in an environment without Nadi. Nothing that goes wrong
here may reach the program, so every entry from it is guarded.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

__all__ = ["Collector", "prepare"]

VARIABLE = "NADI_COLLECT"
SOURCES = {"no_grad": 3, "backward": 2, "optimizer": 1, "profiler": 1}
"""What marks the end of a step, with how many marks are needed until it counts.

A later source is surer, and replaces an earlier one, even if steps have been recorded by it.
"""
_SURENESS = {source: place for place, source in enumerate(SOURCES)}
_TIMED = 64  # steps without a recorder


def prepare() -> None:
    """Wait for the import of torch; then watch for steps."""
    options = json.loads(os.environ[VARIABLE])
    collector = Collector(options)
    if "torch" in sys.modules:
        collector.guarded(collector.install, sys.modules["torch"])
    else:
        sys.meta_path.insert(0, _AfterImport("torch", collector))


class _AfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Calls a collector once a module has been imported."""

    def __init__(self, name: str, collector: Collector) -> None:
        self._name = name
        self._collector = collector
        self._loader: Any = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the module as others do, and load it by this."""
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return spec
        self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Make the module as its own loader does."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, and then the collector."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._collector.guarded(self._collector.install, module)


class Collector:
    """Counts steps, records some of them, and writes the files and a status."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.process = os.getpid()
        self.torch: Any = None
        self.source = ""
        self.marks = dict.fromkeys(SOURCES, 0)
        self.count = 0  # steps that have ended, by the source that counts
        self.first = 0  # that number when the profiler started
        self.profiler: Any = None
        self.observer: Any = None
        self.folder = ""
        self.ended = False  # nothing is recorded any more
        self.other_profiler = False  # the program's own profiler is on
        self.status: dict[str, Any] = {"files": [], "why": ""}
        self.before: list[int] = []  # ns of steps without a recorder
        self.recorded: list[int] = []
        self._since = 0
        self._optimizer = 0
        self._depth = threading.local()
        self._inside = False

    def guarded(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function; what it raises ends the recording, and not the program."""
        if self._inside or os.getpid() != self.process:
            return
        self._inside = True
        try:
            function(*arguments)
        except Exception as error:
            self._give_up(f"{type(error).__name__}: {error}")
        finally:
            self._inside = False

    def install(self, torch: Any) -> None:
        """Watch the places of torch that mark the end of a step."""
        self.torch = torch
        atexit.register(self.guarded, self.finish)
        self._watch_exit()
        self._watch_profilers(torch.profiler.profile)
        self._watch_optimizers()
        self._watch_backward(torch)
        for kind in (torch.no_grad, torch.inference_mode):
            self._watch_block(kind)
        if self.options["locks"]:
            locks = importlib.import_module("recorded_locks")
            locks.name_locks(torch, lambda: self.profiler is not None)

    def _watch_exit(self) -> None:
        """Finish before os._exit, which runs nothing else."""
        leave = os._exit

        def leave_finished(status: int) -> None:
            self.guarded(self.finish)
            leave(status)

        os._exit = leave_finished  # type: ignore[assignment]

    def _watch_profilers(self, profile: Any) -> None:
        """Count steps of the program's own profilers, and make way for them."""
        step, inner = profile.step, self.torch.autograd.profiler.profile

        def counted(it: Any, *arguments: Any, **named: Any) -> Any:
            done = step(it, *arguments, **named)
            if it is not self.profiler:
                self.guarded(self.mark, "profiler")
            return done

        profile.step = counted
        for name, is_on in (("_prepare_trace", True), ("__enter__", True), ("__exit__", False)):
            if hasattr(inner, name):
                setattr(inner, name, self._noticed(getattr(inner, name), is_on=is_on))

    def _noticed(self, method: Callable[..., Any], *, is_on: bool) -> Callable[..., Any]:
        """Wrap a method with which a profiler starts or ends, of the program or of this."""

        def noticed(it: Any, *arguments: Any, **named: Any) -> Any:
            if self._inside:
                return method(it, *arguments, **named)
            if is_on and self.profiler is not None:
                self.guarded(self._give_way)
            self.other_profiler = is_on
            return method(it, *arguments, **named)

        return noticed

    def _after_optimizer(self, optimizer: Any, *_: Any) -> None:
        if self._optimizer in (0, id(optimizer)):  # of several, the first counts
            self._optimizer = id(optimizer)
            self.guarded(self.mark, "optimizer")

    def _watch_optimizers(self) -> None:
        optimizers = importlib.import_module("torch.optim.optimizer")
        register = getattr(optimizers, "register_optimizer_step_post_hook", None)
        if register is not None:  # since PyTorch 2.0
            register(self._after_optimizer)

    def _watch_backward(self, torch: Any) -> None:
        backward = torch.autograd.backward

        def counted(*arguments: Any, **named: Any) -> Any:
            done = backward(*arguments, **named)
            self.guarded(self.mark, "backward")
            return done

        torch.autograd.backward = counted

    def _watch_block(self, kind: Any) -> None:
        """Count the ends of outermost blocks without gradients: requests of a server."""
        enter, leave = kind.__enter__, kind.__exit__

        def entered(it: Any) -> Any:
            self._depth.value = getattr(self._depth, "value", 0) + 1
            return enter(it)

        def left(it: Any, *raised: Any) -> Any:
            done = leave(it, *raised)
            self._depth.value = getattr(self._depth, "value", 1) - 1
            if self._depth.value == 0 and self.source in ("", "no_grad"):
                self.guarded(self.mark, "no_grad")
            return done

        kind.__enter__, kind.__exit__ = entered, left

    def mark(self, source: str) -> None:
        """Take the end of a step, if this source counts or begins to count."""
        self.marks[source] += 1
        if source != self.source:
            if self.source and _SURENESS[self.source] > _SURENESS[source]:
                return
            if self.marks[source] < SOURCES[source]:
                return
            self._discard()
            self.source, self.count, self.ended = source, self.marks[source] - 1, False
            self.before, self.recorded, self._since = [], [], 0
        self.count += 1
        self._time_step()
        if not self.ended:
            self._advance()
        self._since = time.perf_counter_ns()

    def _time_step(self) -> None:
        """Add the time since the last step ended to those with or without a recorder."""
        if not self._since:
            return
        length = time.perf_counter_ns() - self._since
        if self.profiler is None:
            if len(self.before) < _TIMED:
                self.before.append(length)
        elif self.count >= self.first + 2:  # the step before that warmed the profiler up
            self.recorded.append(length)

    def _advance(self) -> None:
        """Start the profiler, tell it of the step, or write what it recorded."""
        if self.profiler is None:
            if self.count >= self.options["warmup"] - 1:
                self._start()
            return
        self.profiler.step()
        if len(self.recorded) >= self.options["steps"]:
            self._write()

    def _start(self) -> None:
        if self.other_profiler or self.torch.autograd._profiler_enabled():
            self.status["why"] = "the program's own profiler ran"
            return
        self.first, self.status["why"] = self.count, ""
        self.folder = tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=self.options["work"])
        self.observer = self.torch.profiler.ExecutionTraceObserver()
        self.observer.register_callback(os.path.join(self.folder, "host.json"))
        self.profiler = _profiler(self.torch, self.folder, self.options, self.observer)
        self.profiler.start()

    def _write(self) -> None:
        """Stop the profiler; move its files to where they belong, if it recorded a step."""
        self.ended = True
        self._stop()
        rank, world = self._rank()
        suffix = f"rank{rank}_{socket.gethostname().split('.')[0]}"
        names = {"host.json": f"host_{suffix}.json", "device.json.gz": f"device_{suffix}.json.gz"}
        self.status.update(rank=rank, world_size=world, host=socket.gethostname())
        if not all(os.path.exists(os.path.join(self.folder, name)) for name in names):
            self.status["why"] = "no whole step was recorded"
            return
        claim = os.path.join(self.options["work"], f"rank{rank}")
        if not self.status["files"]:
            try:
                os.close(os.open(claim, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                self.status["why"] = f"another process has recorded rank {rank}"
                return
        for name, final in names.items():
            os.replace(os.path.join(self.folder, name), os.path.join(self.options["output"], final))
        self.status["files"] = list(names.values())

    def _rank(self) -> tuple[int, int]:
        distributed = getattr(self.torch, "distributed", None)
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank()), int(distributed.get_world_size())
        rank, world = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
        return (int(rank) if rank.isdecimal() else 0), (int(world) if world.isdecimal() else 1)

    def _give_way(self) -> None:
        """Stop for a profiler that the program starts; two cannot run at once."""
        if self.recorded:
            self._write()
            return
        self._discard()
        self.status["why"] = "the program's own profiler started"

    def _discard(self) -> None:
        """Stop without writing."""
        if self.profiler is not None:
            self.profiler.on_trace_ready = None
            self._stop()

    def _stop(self) -> None:
        """Stop the profiler; the observer has to be unregistered, or no other can be."""
        profiler, self.profiler = self.profiler, None
        profiler.stop()
        self.observer.unregister_callback()

    def _give_up(self, why: str) -> None:
        self.ended = True
        self.status["why"] = why
        with contextlib.suppress(Exception):
            self._discard()

    def finish(self) -> None:
        """Write what is recorded when the process ends, and the status."""
        if self.profiler is not None:
            if self.recorded:
                self._write()
            else:
                self._discard()
        self.ended = True
        self.status.update(
            process=self.process, source=self.source, marks=self.marks, count=self.count,
            recorded_ns=self.recorded, other_ns=self.before, command=sys.argv[:1],
        )  # fmt: skip
        path = os.path.join(self.options["work"], f"{self.process}.json")
        with open(path + ".part", "w") as file:
            json.dump(self.status, file)
        os.replace(path + ".part", path)


def _profiler(torch: Any, folder: str, options: dict[str, Any], observer: Any) -> Any:
    """Make a profiler that skips one step and writes both files when it has recorded the others."""
    of_torch = torch.profiler
    more: dict[str, Any] = {}
    wanted = {"enable_cuda_sync_events": options["sync"], "profile_all_threads": True}
    while wanted:
        try:
            more["experimental_config"] = of_torch._ExperimentalConfig(**wanted)
            break
        except (AttributeError, TypeError):  # older versions have not all of them
            wanted.popitem()
    device = os.path.join(folder, "device.json.gz")
    return of_torch.profile(
        activities=of_torch.supported_activities(),
        schedule=of_torch.schedule(wait=0, warmup=1, active=options["steps"], repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(device),
        execution_trace_observer=observer,
        record_shapes=options["shapes"], with_stack=options["stacks"],
        with_modules=options["stacks"], profile_memory=options["memory"], **more,
    )  # fmt: skip
