"""Threads that run the parts of a replay, and take turns as recorded.

Programs that a replay is written as contain this class, so it needs the standard library only.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any


class ThreadTeam:
    """The caller's thread and others, which live until ``close`` is called.

    Parameters
    ----------
    size
        Number of threads, with that of the caller.
    locks
        One for each place where a thread waits for another one: who waits acquires it, and who is
        awaited releases it. They are held from now on.
    scope
        Makes what each other thread runs in, such as ``torch.no_grad``.
    """

    def __init__(
        self, size: int, locks: Sequence[threading.Lock], scope: Callable[[], Any]
    ) -> None:
        self._locks = locks
        self._given: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(size - 1)]
        self._ended: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._errors: list[Exception] = []
        for lock in locks:
            lock.acquire()
        for given in self._given:
            threading.Thread(target=self._work, args=(given, scope), daemon=True).start()

    def run(self, functions: Sequence[Sequence[Callable[[Any], None]]], value: Any) -> None:
        """Call the functions of each thread with a value, and return when all threads are done.

        ``functions`` has the calls of each thread, the caller's first. The first error of any
        thread is raised; the team is of no use after it.
        """
        for given, mine in zip(self._given, functions[1:], strict=True):
            given.put((mine, value))
        self._call(functions[0], value)
        for _ in self._given:
            self._ended.get()
        if self._errors:
            raise self._errors[0]

    def close(self) -> None:
        """End the other threads."""
        for given in self._given:
            given.put(None)

    def _work(self, given: queue.SimpleQueue[Any], scope: Callable[[], Any]) -> None:
        with scope():
            while (work := given.get()) is not None:
                self._call(*work)
                self._ended.put(None)

    def _call(self, functions: Sequence[Callable[[Any], None]], value: Any) -> None:
        try:
            for function in functions:
                function(value)
        except Exception as error:  # of any operator; the others must not wait for this thread
            self._errors.append(error)
            for lock in self._locks:
                if lock.locked():
                    lock.release()
