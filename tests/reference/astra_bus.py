"""The shared memory bus of ASTRA-sim, a LogGP model: one transfer after the other.

A rank has a bus between its device and its network adapter, and the device one of its own to
its memory. What a device sends is read from memory first; what it gets is written there, and
reduced, and sent back over both.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Any

__all__ = ["Side", "of_32_bits", "sides_of"]

Callback = Callable[[], None]
_MOST = 8  # transfers one way before the other way has its turn
_MEMORY_GAP = 0.0038  # ns per byte between a device and its memory


class Side:
    """One end of a bus: what it sends, receives and reduces, each in order."""

    def __init__(self, rank: Any, system: dict[str, Any], gap: float) -> None:
        self.rank, self.gap = rank, gap
        self.latency, self.overhead, self.pause = (int(system.get(k, 0)) for k in ("L", "o", "g"))
        self.reduction = int(system.get("local-reduction-delay", 1))
        self.sends: deque[list[Any]] = deque()
        self.receives: deque[list[Any]] = deque()
        self.reductions: deque[list[Any]] = deque()
        self.state = self.before = "free"
        self.reduces = False
        self.last = self.in_a_row = 0
        self.partner: Side = self
        self.memory: tuple[Side, Side] | None = None

    def request(self, size: int, reduces: bool, goes_back: bool, done: Callback) -> None:
        if self.memory is not None:  # read it first
            self.memory[1]._put(
                [size, False, False, lambda: self._put([size, reduces, goes_back, done])]
            )
        else:
            self._put([size, reduces, goes_back, done])

    def _put(self, transfer: list[Any]) -> None:
        self.sends.append(transfer)
        self._go_on()

    def _send(self) -> None:
        now = self.rank.world.clock.now
        wait = self.overhead
        if self.before == "sending" and self.overhead + now - self.last <= self.pause:
            wait = self.pause - (now - self.last)
        transfer = self.sends.popleft()
        self.partner._take(transfer, wait)
        self.state = "sending"
        self.rank.after(int(wait + self.gap * (transfer[0] - 1)), self._sent)

    def _take(self, transfer: list[Any], wait: int) -> None:
        self.receives.append(transfer)
        self.before, self.state, self.in_a_row = self.state, "receiving", 0
        time = wait + (transfer[0] - 1) * self.gap + self.latency + self.overhead
        self.rank.after(int(time), self._received)

    def _sent(self) -> None:
        self.last, self.before, self.state = self.rank.world.clock.now, self.state, "free"
        self.in_a_row += 1
        self._go_on()

    def _received(self) -> None:
        self.last, self.before = self.rank.world.clock.now, self.state
        if len(self.receives) < 2:
            self.state = "free"
        self._use(self.receives.popleft())
        self._go_on()

    def _reduced(self) -> None:
        self.reduces = False
        self._use(self.reductions.popleft())
        self._go_on()

    def _use(self, transfer: list[Any]) -> None:
        size, reduces, goes_back, done = transfer
        if reduces:
            transfer[1] = False
            self._by_memory(size, True, lambda: self._to_reduce(transfer))
        elif goes_back:
            transfer[2] = False
            self._by_memory(size, True, lambda: self._put(transfer))
        else:
            self._by_memory(size, False, done)

    def _by_memory(self, size: int, and_back: bool, then: Callback) -> None:
        if self.memory is None:
            then()
        else:
            self.memory[0].request(size, False, and_back, then)

    def _to_reduce(self, transfer: list[Any]) -> None:
        self.reductions.append(transfer)
        self._go_on()

    def _go_on(self) -> None:
        if self.state == "free" and self.sends:
            other = self.partner
            if self.in_a_row > _MOST and other.sends and other.in_a_row <= _MOST:
                if other.state == "free":
                    other._go_on()
            else:
                self._send()
        if not self.reduces and self.reductions:
            self.reduces = True
            self.rank.after(self.reductions[0][0] // 100 * self.reduction + 50, self._reduced)


def of_32_bits(value: float) -> float:
    """Round a number to one of 32 bits."""
    found: float = struct.unpack("f", struct.pack("f", value))[0]
    return found


def sides_of(rank: Any, system: dict[str, Any]) -> tuple[Side, Side]:
    """Make the buses of a rank; gives the side of the device and that of the adapter."""
    # G is read as a number of 32 bits, though the arithmetic has 64
    gap = of_32_bits(float(system.get("G", 0)))
    device, adapter = (Side(rank, system, gap) for _ in range(2))
    near, memory = (Side(rank, system, _MEMORY_GAP) for _ in range(2))
    device.partner, adapter.partner = adapter, device
    near.partner, memory.partner = memory, near
    device.memory = near, memory
    return device, adapter
