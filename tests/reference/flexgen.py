"""FlexGen's cost model written out as its file has it, in exact fractions, for plain attention.

Names are those of the file: w, c and h for weights, cache and hidden; g, c and n for GPU, CPU and
disk.
"""

from __future__ import annotations

import math
from fractions import Fraction

from nadi.memory.offloading.flexgen_costs import Inference, OffloadMachine
from tests.reference.simplex import least_cost

SHARES = ("wg", "wc", "wn", "cg", "cc", "cn", "hg", "hc")
TIMES = ("Tpre", "Tgen")


def seconds_of_block(
    asked: Inference, machine: OffloadMachine, gbs: int, number: int
) -> Fraction | None:
    """Give the least time of a block of ``number`` batches of ``gbs``; None if nothing fits."""
    program = _Program(asked, machine, gbs, number * gbs)
    program.add_times()
    program.add_memory()
    layers, n = asked.layers, asked.generated
    return least_cost(*program.standard({"Tpre": layers, "Tgen": layers * (n - 1)}))


class _Program:
    """Rows with a limit, and rows that are equal to 1."""

    def __init__(self, asked: Inference, machine: OffloadMachine, gbs: int, bls: int) -> None:
        self.asked, self.machine, self.gbs, self.bls = asked, machine, gbs, bls
        self.rows: list[tuple[dict[str, Fraction], Fraction]] = []

    def at_most(self, limit: float, constant: float = 0.0, **terms: float) -> None:
        fractions = {name: Fraction(value) for name, value in terms.items()}
        self.rows.append((fractions, Fraction(limit) - Fraction(constant)))

    def standard(
        self, costs: dict[str, int]
    ) -> tuple[list[Fraction], list[list[Fraction]], list[Fraction]]:
        """Give costs, rows and sums, with a slack for each row with a limit."""
        names = [*SHARES, *TIMES]
        sums = [("wg", "wc", "wn"), ("cg", "cc", "cn"), ("hg", "hc")]
        slacks = len(self.rows)
        equal = [
            [*(Fraction(int(name in group)) for name in names), *[Fraction(0)] * slacks]
            for group in sums
        ]
        for i, (terms, _) in enumerate(self.rows):
            slack = [Fraction(int(k == i)) for k in range(slacks)]
            equal.append([*(terms.get(name, Fraction(0)) for name in names), *slack])
        totals = [Fraction(1)] * len(sums) + [limit for _, limit in self.rows]
        wanted = [Fraction(costs.get(name, 0)) for name in names] + [Fraction(0)] * slacks
        return wanted, equal, totals

    def add_times(self) -> None:
        a, m, bls = self.asked, self.machine, self.bls
        s, n, h1, h2 = a.prompt, a.generated, a.hidden, a.ffn
        wi = 8 * h1**2 + 4 * h1 * h2
        hidden, cache = 2 * s * h1 * bls, 4 * (s + 1) * h1 * bls
        load = {"wc": wi / m.cpu_to_gpu, "wn": wi / m.cpu_to_gpu + wi / m.disk_to_cpu,
                "hc": hidden / m.cpu_to_gpu}  # fmt: skip
        self.at_most(0, **load, Tpre=-1)
        store = {"cc": cache / m.gpu_to_cpu_cache,
                 "cn": cache / m.gpu_to_cpu_cache + cache / m.cpu_to_disk_cache,
                 "hc": hidden / m.gpu_to_cpu_hidden}  # fmt: skip
        self.at_most(0, **store, Tpre=-1)
        linear = bls * (8 * s * h1**2 + 4 * s * h1 * h2) / m.prefill_matmul
        self.at_most(0, linear + 4 * bls * s**2 * h1 / m.prefill_attention, Tpre=-1)
        token = 2 * h1 * bls
        ctog = {"wc": wi / m.cpu_to_gpu, "wn": wi / m.cpu_to_gpu, "hc": token / m.cpu_to_gpu}
        kept = 4 * bls * (s + n / 2) * h1
        cpu = kept / _cpu_flops(m, self.gbs, h1)
        for constant, terms in (
            (0.0, {"hc": token / m.gpu_to_cpu_hidden}),
            (0.0, {"cn": kept / m.disk_to_cpu, "wn": wi / (m.disk_to_cpu * 0.95)}),
            (0.0, {"cn": 4 * bls * h1 / m.cpu_to_disk_decode}),
            (bls * (8 * h1**2 + 4 * h1 * h2) / m.decode_matmul,
             {"cg": kept / m.decode_attention, "cc": cpu, "cn": cpu}),
        ):  # fmt: skip
            both = {k: ctog.get(k, 0) + terms.get(k, 0) for k in {*ctog, *terms}}
            self.at_most(0, constant, **both, Tgen=-1)

    def add_memory(self) -> None:
        a, bls, gbs = self.asked, self.bls, self.gbs
        s, n, length, h1, h2 = a.prompt, a.generated, a.layers, a.hidden, a.ffn
        wi = 8 * h1**2 + 4 * h1 * h2
        gmem, cmem, nmem = self.machine.usable
        interp = gbs * (8 * s * h1 + 2 * s * h1 + 2 * a.heads * s**2 + 2 * s * h1 + 4 * s * h1)
        interp += gbs * (2 * s * h2 + 2 * s * h1)
        self.at_most(
            gmem, interp + 2 * wi + 2 * s * h1 * gbs, wg=wi * length - 2 * wi,
            hg=2 * s * h1 * bls - 2 * s * h1 * gbs, cg=4 * (s + n) * h1 * bls * length,
        )  # fmt: skip
        attention = gbs * (2 * h1 + 2 * (s + n) * h1 + 2 * a.heads * (s + n))
        attention += gbs * (2 * (s + n) * h1 + 2 * h1)
        interg = gbs * (8 * h1 + 4 * h1 + 2 * h2 + 2 * h1)
        self.at_most(
            gmem, interg + 2 * wi + 2 * h1 * gbs, wg=wi * length - 2 * wi,
            hg=2 * h1 * bls - 2 * h1 * gbs,
            cg=4 * (s + n) * h1 * bls * length + 4 * gbs * (s + n) * h1 + attention,
        )  # fmt: skip
        self.at_most(
            cmem, wi + 2 * s * h1 * gbs, wc=wi * length, wg=-wi, hg=-2 * s * h1 * gbs,
            hc=2 * s * h1 * bls, cc=4 * s * h1 * bls * length,
        )  # fmt: skip
        self.at_most(
            cmem, 2 * a.heads * (s + n) * gbs + 2 * h1 * gbs, wc=wi * length, hc=2 * h1 * bls,
            cc=4 * (s + n) * h1 * bls * length, wn=wi, cn=8 * (s + n) * h1 * gbs,
        )  # fmt: skip
        self.at_most(nmem, wn=wi * length, cn=4 * (s + n) * h1 * bls * length)


def _cpu_flops(machine: OffloadMachine, gbs: int, h1: int) -> float:
    few, narrow = max(0.0, math.log2(64 / gbs)), max(0.0, math.log2(4096 / h1))
    share = 1 + machine.joint_slope * few * narrow
    share += -machine.batch_slope * few - machine.width_slope * narrow
    return machine.cpu_attention * max(0.1, share)
