"""Where the work of a command runs: processes, replaced if one is lost, or what a name says."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib import import_module
from multiprocessing import get_context, parent_process
from threading import Lock, Thread
from typing import Any

from nadi.errors import Parameter, UsageError

_REPLACED = 3  # times
_MOST = 4096  # processes
_DASK = "dask://"
_SAFE_PATH = "PYTHONSAFEPATH"


def end_with_parent() -> None:
    """End this process when the one that started it is gone.

    Pipes between workers stay open without it, so that workers of a killed program would wait for
    ever.
    """

    def wait() -> None:
        parent = parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()


class _ReplacedProcesses(Executor):
    """Processes that are started anew when one is lost; work that was not done is repeated.

    Only if one has begun before: none does where a script has no guard.
    """

    def __init__(self, workers: int) -> None:
        self._workers, self._left = workers, _REPLACED
        self._lock = Lock()
        self._pool: ProcessPoolExecutor | None = None
        self._first: Future[int] = Future()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Do a call in a process."""
        done: Future[Any] = Future()
        self._begin(done, partial(fn, *args, **kwargs))
        return done

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes."""
        with self._lock:
            pool, self._left = self._pool, 0
        if pool is not None:
            pool.shutdown(wait, cancel_futures=cancel_futures)

    def _begin(self, done: Future[Any], call: Callable[[], Any]) -> None:
        pool = self._replaced(None)
        try:
            one = pool.submit(call)
        except BrokenProcessPool:
            pool = self._replaced(pool)
            one = pool.submit(call)
        one.add_done_callback(partial(self._end, done, call, pool))

    def _end(
        self, done: Future[Any], call: Callable[[], Any], pool: ProcessPoolExecutor,
        one: Future[Any],
    ) -> None:  # fmt: skip
        if one.cancelled():
            done.cancel()
        error = None if one.cancelled() else one.exception()
        if isinstance(error, BrokenProcessPool) and self._replaced(pool) is not pool:
            self._begin(done, call)
        elif done.set_running_or_notify_cancel():
            if error is None:
                done.set_result(one.result())
            else:
                done.set_exception(error)

    def _replaced(self, broken: ProcessPoolExecutor | None) -> ProcessPoolExecutor:
        """Return the processes; other ones than those, unless they cannot be replaced."""
        with self._lock:
            if self._pool is not None and self._pool is not broken:
                return self._pool
            if broken is not None:
                if not self._left or not self._first.done() or self._first.exception():
                    return broken
                self._left -= 1
            pool = ProcessPoolExecutor(
                self._workers, mp_context=get_context("spawn"), initializer=end_with_parent
            )
            self._pool, self._first = pool, pool.submit(os.getpid)
            return pool


@contextmanager
def _no_working_folder() -> Iterator[None]:
    """Let processes that are started import nothing of the working folder.

    It may hold files of others, and Python looks there first until it has the program's own paths.
    """
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before


@contextmanager
def worker_processes(workers: int) -> Iterator[Executor]:
    """Give processes for as long as the block lasts; work that has not begun then is dropped.

    They are spawned: a forked process could deadlock on threads that it does not have. A spawned
    one begins the user's program anew, which has to keep its work under a guard. What a lost
    process had not done is repeated.

    - Raises UsageError if a process ends before its work begins, or processes are lost again and
      again.
    """
    with _no_working_folder(), _ReplacedProcesses(workers) as pool:
        try:
            yield pool
        except BrokenProcessPool:
            raise UsageError(
                "", "a worker process ended early",
                "check free memory; a script must start its work under if __name__ == '__main__'",
            ) from None  # fmt: skip
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def executor_named(name: str) -> Iterator[Executor | None]:
    """Give the executor that an option names, for as long as the block lasts; None for no name.

    - ``name``: ``processes`` for one on each core, or ``processes:N``; ``dask://HOST:PORT`` for a
      Dask scheduler; ``MODULE:NAME`` for an Executor of the standard library's kind, or a function
      that makes one.
    - Raises UsageError if there is no such executor, or its workers are lost again and again.
    """
    kind, _, rest = name.partition(":")
    if not name:
        yield None
    elif kind == "processes":
        if rest and not (rest.isdecimal() and len(rest) < 5 and 1 <= int(rest) <= _MOST):
            raise _unknown(name, f"the number of processes is 1 to {_MOST}")
        with worker_processes(int(rest or os.cpu_count() or 1)) as pool:
            yield pool
    elif name.startswith(_DASK):
        with _of_dask(name) as executor:
            yield executor
    else:
        with _of_module(name, kind, rest) as executor:
            yield executor


def _unknown(name: str, what: str) -> UsageError:
    return UsageError(
        Parameter("executor", name), what, "give processes, processes:4, dask://HOST:PORT or "
        "MODULE:NAME of a concurrent.futures.Executor",
    )  # fmt: skip


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


@contextmanager
def _of_dask(name: str) -> Iterator[Executor]:
    try:
        from distributed import Client, KilledWorker
        from distributed.comm import CommClosedError
    except ImportError:
        raise UsageError(
            Parameter("executor", name), "needs Dask", "pip install 'nadi[dask]'"
        ) from None
    try:
        client = Client(f"tcp://{name.removeprefix(_DASK)}", timeout="10s")
    except (OSError, ValueError) as error:
        raise _unknown(name, _first_line(error)) from None
    try:
        with client:
            yield client.get_executor()
    except (CommClosedError, KilledWorker) as error:
        raise UsageError(
            Parameter("executor", name), _first_line(error),
            "check the scheduler, and the memory of its workers",
        ) from None  # fmt: skip


@contextmanager
def _of_module(name: str, module: str, attribute: str) -> Iterator[Executor]:
    try:
        found = getattr(import_module(module), attribute)
        made = found if hasattr(found, "submit") and not isinstance(found, type) else found()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise _unknown(name, _first_line(error)) from None
    if not hasattr(made, "submit"):
        raise _unknown(name, f"is of type {type(made).__name__}, which has no method submit")
    with nullcontext() if made is found else made:
        yield made
