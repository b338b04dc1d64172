"""Record a few steps of the process that this runs in, without a change to its program.

Standard library only: the program may run in an environment without Nadi. Nothing that goes wrong
here may reach the program, so every entry from it is guarded.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
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
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

VARIABLE = "NADI_COLLECT"
SOURCES = {
    "forward": 4, "no_grad": 3, "backward": 2, "optimizer": 1, "rare_optimizer": 1, "profiler": 1,
}  # fmt: skip
"""What marks the end of a step, with how many marks are needed until it counts.

A later source is surer, and replaces an earlier one, even if steps have been recorded by it.
"""
_SURENESS = {source: place for place, source in enumerate(SOURCES)}
_UNRECORDED = 64  # steps of which the length is kept
_MOST_OF_FIRST = 16  # steps of the first optimizer in a step of a rare one
_ENOUGH = 5  # to write them before the program ends, which it may not do by itself


def prepare() -> None:
    """Wait for the import of torch; then watch for steps."""
    options = json.loads(os.environ[VARIABLE])
    collector = Collector(options)
    _after_import("torch", functools.partial(collector.guarded, collector.install))


def _after_import(name: str, then: Callable[[ModuleType], None]) -> None:
    """Call a function with a module, now or when it is imported."""
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, _AfterImport(name, then))


class _AfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Calls a function with a module once that has been imported."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._then = then
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
        """Run the module, and then the function."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then(module)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Give the code of a function, and of the functions that are defined in it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def _recorded_steps() -> ModuleType:
    """Import the module beside this one when torch is there: few processes need it."""
    return importlib.import_module("recorded_steps")


class Collector:
    """Counts steps, records some of them, and writes the files and a status."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.process = os.getpid()
        self.torch: Any = None
        self.source = ""
        self.marks = dict.fromkeys(SOURCES, 0)
        self.count = 0  # steps that have ended, by the source that counts
        self.recorder: Any = None  # while it records, and after: of the last recording
        self.folder = ""
        self.ended = False  # nothing is recorded any more
        self.other_profiler = False  # the program's own profiler is on
        self.status: dict[str, Any] = {"files": [], "why": ""}
        self.unrecorded: Any = None  # steps without a recorder
        self._first = self._rare = 0  # optimizers whose steps are marks
        self._repeated = 0  # the module whose calls are marks
        self._called: set[int] = set()  # modules that no module called
        self._seen: dict[int, int] = {}  # others: steps of the first when they stepped last
        self._here = threading.local()
        self._is_compiling: Callable[[], bool] = lambda: False
        self._compile_frames_by: Callable[[Any], Any] = lambda _: None
        self._inside = False

    def guarded(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function; what it raises ends the recording, and not the program."""
        if self._inside or os.getpid() != self.process:
            return
        self._inside = True
        compiler = self._compile_frames_by(None)
        try:
            function(*arguments)
        except Exception as error:
            self._give_up(f"{type(error).__name__}: {error}")
            if isinstance(error, OSError):
                self.status["unwritten"] = error.strerror or str(error)
        finally:
            self._compile_frames_by(compiler)
            self._inside = False

    def install(self, torch: Any) -> None:
        """Watch the places of torch that mark the end of a step."""
        self.torch = torch
        self.unrecorded = _recorded_steps().StepTimer()
        if hasattr(torch, "compiler") and hasattr(torch.compiler, "is_compiling"):
            self._is_compiling = torch.compiler.is_compiling
        _after_import("torch._dynamo", self._exempt)
        atexit.register(self.guarded, self.finish)
        self._watch_exit()
        self._watch_profilers(torch.profiler.profile)
        self._watch_optimizers()
        self._watch_backward(torch)
        self._watch_modules(torch)
        for kind in (torch.no_grad, torch.inference_mode):
            self._watch_block(kind)
        if self.options["locks"]:
            locks = importlib.import_module("recorded_locks")
            locks.name_locks(torch, self.is_recording)

    def _exempt(self, dynamo: Any) -> None:
        """Keep the compiler from what runs beside the program's functions, and what that calls."""
        gaps, traced = map(importlib.import_module, ("sampled_gaps", "traced_calls"))
        spaces = map(vars, (Collector, gaps, traced.CallTracer))
        methods = [
            one for space in spaces for one in space.values() if isinstance(one, FunctionType)
        ]
        with contextlib.suppress(AttributeError):  # a version without them compiles more
            for method in methods:
                for code in _codes(method.__code__):
                    dynamo.eval_frame.skip_code(code)
            self._compile_frames_by = self.torch._C._dynamo.eval_frame.set_eval_frame

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
            self.guarded(self.mark, "profiler")  # not of the recorder, which steps inside of it
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
            if is_on and self.is_recording():
                self.guarded(self._give_way)
            self.other_profiler = is_on
            return method(it, *arguments, **named)

        return noticed

    def _watch_optimizers(self) -> None:
        """Count steps of optimizers when the range that PyTorch opens for each has ended."""
        kind = importlib.import_module("torch.optim.optimizer").Optimizer
        make_ranged = getattr(kind, "profile_hook_step", None)
        if make_ranged is None:  # before PyTorch 2.0
            return
        is_compiling = self._is_compiling

        def counting(step: Any) -> Any:
            ranged = make_ranged(step)

            @functools.wraps(step)
            def counted(it: Any, *arguments: Any, **named: Any) -> Any:
                done = ranged(it, *arguments, **named)
                if is_compiling():
                    return done
                self.guarded(self._take_optimizer, id(it))
                return done

            return counted

        kind.profile_hook_step = staticmethod(counting)

    def _take_optimizer(self, which: int) -> None:
        """Mark a step of the first optimizer, or of one that steps once in several of its steps.

        A discriminator that is trained several times for each time that its generator is does
        less than the whole step in each of its own.
        """
        if self._first in (0, which):
            self._first = which
            self.mark("optimizer")
            return
        count = self.marks["optimizer"]
        if not self._rare and 1 < count - self._seen.get(which, count) <= _MOST_OF_FIRST:
            self._rare = which
        self._seen[which] = count
        if which == self._rare:
            self.mark("rare_optimizer")

    def _watch_backward(self, torch: Any) -> None:
        backward = torch.autograd.backward

        def counted(*arguments: Any, **named: Any) -> Any:
            done = backward(*arguments, **named)
            self.guarded(self.mark, "backward")
            return done

        torch.autograd.backward = counted

    def _watch_modules(self, torch: Any) -> None:
        """Count calls of modules that no module makes, until something surer marks steps."""
        kind, here = torch.nn.Module, self._here
        call, is_compiling = kind.__call__, self._is_compiling

        def counted(it: Any, *arguments: Any, **named: Any) -> Any:
            if is_compiling() or getattr(here, "in_module", False):
                return call(it, *arguments, **named)
            here.in_module = True
            try:
                done = call(it, *arguments, **named)
            finally:
                here.in_module = False
            here.has_called = True  # the block around it is no construction of a module
            if self.is_trained() and kind.__call__ is counted:
                kind.__call__ = call
            else:
                self.guarded(self._take_module, id(it))
            return done

        kind.__call__ = counted

    def _take_module(self, which: int) -> None:
        """Mark a call of the first module that is called again: a step may call several in turn."""
        if not self._repeated and which in self._called:
            self._repeated = which
        self._called.add(which)
        if which == self._repeated:
            self.mark("forward")

    def is_trained(self) -> bool:
        """Return whether gradients were computed: steps are no requests of a server."""
        return any(self.marks[source] for source in ("backward", "optimizer"))

    def _watch_block(self, kind: Any) -> None:
        """Count the ends of outermost blocks without gradients that call a module: requests."""
        enter, leave, here = kind.__enter__, kind.__exit__, self._here

        def entered(it: Any) -> Any:
            here.depth = getattr(here, "depth", 0) + 1
            if here.depth == 1:
                here.has_called = False
            return enter(it)

        def left(it: Any, *raised: Any) -> Any:
            done = leave(it, *raised)
            here.depth = getattr(here, "depth", 1) - 1
            if here.depth == 0 and here.has_called and not self.is_trained():
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
            self.unrecorded = _recorded_steps().StepTimer()
        self.count += 1
        if self.is_recording():
            self._advance()
            return
        if self.other_profiler:
            self.unrecorded.forget()
        self.unrecorded.end()
        measured = len(self.unrecorded.lengths)
        if self.ended and self.status["files"] and measured == _ENOUGH:
            self._write()
        if not self.ended and self.count >= self.options["warmup"] - 1:
            self._start()
        if not self.is_recording() and measured < _UNRECORDED:
            self.unrecorded.begin()

    def is_recording(self) -> bool:
        """Return whether a recorder is on."""
        return self.recorder is not None and not self.recorder.has_ended

    def _advance(self) -> None:
        """Tell the recorder of the step; write when it has recorded what it should."""
        self.recorder.step()
        if self.recorder.has_ended:
            self._end()
            self.unrecorded.begin()

    def _start(self) -> None:
        if self.other_profiler or self.torch.autograd._profiler_enabled():
            self.status["why"] = "the program's own profiler ran"
            return
        self.status["why"] = ""
        self.folder = tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=self.options["work"])
        self.recorder = _recorded_steps().StepRecorder(self.torch, self.folder, self.options)
        self.recorder.start()

    def _end(self) -> None:
        """Stop; claim the rank, and write what is recorded of it, if a step is."""
        self.ended = True
        self.recorder.stop()
        rank, world = self._rank()
        self.status.update(rank=rank, world_size=world, host=socket.gethostname())
        if not self.status["files"]:
            try:
                claim = os.path.join(self.options["work"], f"rank{rank}")
                os.close(os.open(claim, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                self.status["why"] = f"another process has recorded rank {rank}"
                return
        self._write()
        if not self.status["files"]:
            self.status["why"] = "no whole step was recorded"

    def _write(self) -> None:
        """Write the files where they belong, with what is known of other steps."""
        suffix = f"rank{self.status['rank']}_{socket.gethostname().split('.')[0]}"
        host, device = f"host_{suffix}.json", f"device_{suffix}.json.gz"
        paths = [os.path.join(self.options["output"], name) for name in (host, device)]
        written = self.recorder.write(*paths, self.unrecorded)
        self.status.update(
            files=[os.path.basename(path) for path in written], source=self.source,
            lengths=self.recorder.lengths(self.unrecorded),
        )  # fmt: skip

    def _rank(self) -> tuple[int, int]:
        distributed = getattr(self.torch, "distributed", None)
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank()), int(distributed.get_world_size())
        rank, world = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
        return (int(rank) if rank.isdecimal() else 0), (int(world) if world.isdecimal() else 1)

    def _give_way(self) -> None:
        """Stop for a profiler that the program starts; two cannot run at once."""
        if self.recorder.timed.lengths:
            self._end()
            return
        self._discard()
        self.status["why"] = "the program's own profiler started"

    def _discard(self) -> None:
        """Stop without writing."""
        if self.is_recording():
            self.recorder.stop()
        self.recorder = None

    def _give_up(self, why: str) -> None:
        self.ended = True
        self.status["why"] = why
        with contextlib.suppress(Exception):
            self._discard()

    def finish(self) -> None:
        """Write what is recorded when the process ends, and the status."""
        if self.is_recording():
            if self.recorder.timed.lengths:
                self._end()
            else:
                self._discard()
        elif self.status["files"] and self.recorder is not None:
            self._write()
        self.ended = True
        self.status.update(
            process=self.process, marks=self.marks, count=self.count, command=sys.argv[:1]
        )
        self.status.setdefault("source", self.source)
        path = os.path.join(self.options["work"], f"{self.process}.json")
        with open(path + ".part", "w") as file:
            json.dump(self.status, file)
        os.replace(path + ".part", path)
