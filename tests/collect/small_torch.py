"""A package named torch that has what ``nadi record`` watches, for machines without PyTorch."""

from __future__ import annotations

from pathlib import Path

__all__ = ["write_small_torch"]

INIT = """
log = []

from . import autograd, optim, profiler

class compiler:
    def is_compiling(): return False

class nn:
    class Module:
        def __call__(self): return self.forward()

class no_grad:
    def __enter__(self): return None
    def __exit__(self, *raised): return None

class inference_mode(no_grad): pass
"""
AUTOGRAD = """
from . import profiler

def backward(*tensors): pass

def _profiler_enabled(): return False
"""
AUTOGRAD_PROFILER = """
class profile:
    def _prepare_trace(self): pass
    def __enter__(self): return self
    def __exit__(self, *raised): pass
"""
OPTIMIZER = """
from torch import log

class Optimizer:
    def __init__(self):
        if not hasattr(Optimizer.step, "hooked"):
            Optimizer.step = self.profile_hook_step(Optimizer.step)
            Optimizer.step.hooked = True

    @staticmethod
    def profile_hook_step(step):
        def ranged(*arguments):
            log.append("optimizer")
            step(*arguments)
            log.append("optimizer ended")
        return ranged

    def step(self): pass
"""
PROFILER = """
import json

from torch import log
from torch.autograd.profiler import profile as Inner

class ExecutionTraceObserver:
    registered = 0
    def register_callback(self, path):
        assert ExecutionTraceObserver.registered == profile.running == 0
        ExecutionTraceObserver.registered = 1
        self.path = path
    def start(self): self.first = len(log)
    def stop(self): self.log = log[self.first:]
    def unregister_callback(self):
        ExecutionTraceObserver.registered = 0
        open(self.path, "w").write(json.dumps(self.log))

class record_function:
    def __init__(self, name):
        self.name = name
        if not name.startswith("ProfilerStep"): print("range", name)
    def __enter__(self):
        log.append(self.name)
        return self
    def __exit__(self, *raised): log.append(self.name + " ended")

def schedule(**options): return options

def supported_activities(): return {"cpu"}

class profile:
    running = 0
    def __init__(self, on_trace_ready=None, **options):
        self.on_trace_ready, self.options = on_trace_ready, options
    def start(self):
        self.inner = Inner()
        self.inner._prepare_trace()
        profile.running += 1
        assert profile.running == 1, "two profilers"
        self.steps, self.first = 0, len(log)
    def step(self):
        log.append("step")
        self.steps += 1
    def stop(self):
        profile.running -= 1
        if self.on_trace_ready: self.on_trace_ready(self)
        self.inner.__exit__(None, None, None)
    def export_chrome_trace(self, path):
        found = {"steps": self.steps, "log": log[self.first:]}
        open(path, "w").write(chr(10) + json.dumps(found))
"""


def write_small_torch(folder: Path) -> None:
    """Write the package into a folder."""
    files = {
        "__init__": INIT, "autograd/__init__": AUTOGRAD, "autograd/profiler": AUTOGRAD_PROFILER,
        "optim/__init__": "", "optim/optimizer": OPTIMIZER, "profiler": PROFILER,
    }  # fmt: skip
    for name, text in files.items():
        path = folder / "torch" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
