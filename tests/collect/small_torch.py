"""A package named torch that has what ``nadi collect`` watches, for machines without PyTorch."""

from __future__ import annotations

from pathlib import Path

__all__ = ["write_small_torch"]

INIT = """
from . import autograd, optim, profiler

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
hooks = []

def register_optimizer_step_post_hook(hook): hooks.append(hook)

class Optimizer:
    def step(self):
        for hook in hooks: hook(self, (), {})
"""
PROFILER = """
from torch.autograd.profiler import profile as Inner

class ExecutionTraceObserver:
    registered = 0
    def register_callback(self, path):
        assert ExecutionTraceObserver.registered == 0
        ExecutionTraceObserver.registered = 1
        self.path = path
    def unregister_callback(self): ExecutionTraceObserver.registered = 0

class record_function:
    def __init__(self, name): print("range", name)
    def __enter__(self): return self
    def __exit__(self, *raised): pass

def schedule(**options): return options

def supported_activities(): return {"cpu"}

class profile:
    running = 0
    def __init__(self, execution_trace_observer=None, on_trace_ready=None, **options):
        self.observer, self.on_trace_ready = execution_trace_observer, on_trace_ready
        self.options = options
    def start(self):
        self.inner = Inner()
        self.inner._prepare_trace()
        profile.running += 1
        assert profile.running == 1, "two profilers"
        self.steps = 0
    def step(self): self.steps += 1
    def stop(self):
        profile.running -= 1
        if self.on_trace_ready: self.on_trace_ready(self)
        if self.observer: open(self.observer.path, "w").write(f"{self.steps} steps {self.options}")
        self.inner.__exit__(None, None, None)
    def export_chrome_trace(self, path): open(path, "w").write(f"{self.steps} steps")
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
