"""The output of nccl-tests, as several versions print it."""

from __future__ import annotations

import pytest

from nadi.errors import FormatError
from nadi.systems.nccl.measured import parse_nccl_tests

RANKS = "".join(
    f"#  Rank {rank:2} Group  0 Pid {rank} on   host{rank // 2} device {rank % 2} [0x0f] GPU\n"
    for rank in range(4)
)
NEW = f"""# nThread 1 nGpus 1 minBytes 8 maxBytes 1024 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
{RANKS}#
#                                                              out-of-place          in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)
           0             0     float     sum      -1     0.06    0.00    0.00      0     0.05
          16             4     float     sum      -1    12.50    0.00    0.00      0    12.00
     1048576        262144     float     sum      -1    40.00   26.21   39.32      0    41.00
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 19.66
#
"""


def test_sizes_and_times_of_all_rows_with_bytes() -> None:
    table = parse_nccl_tests(NEW.encode(), "some/reduced.txt")
    assert (table.collective, table.ranks, table.nodes) == ("all_reduce", 4, 2)
    assert table.sizes == (16, 1 << 20)
    assert table.times == (12_500.0, 40_000.0)


def test_older_versions_have_no_root_and_launchers_put_ranks_before_lines() -> None:
    text = NEW.replace("    root ", "").replace("      -1", "").replace("sum", "none")
    lines = [f"[1,0]<stdout>:{line}" for line in text.splitlines()]
    table = parse_nccl_tests("\n".join(lines).encode(), "x/alltoall_perf.log")
    assert table.collective == "all_to_all"  # by the name: its ratio fits none
    assert table.sizes == (16, 1 << 20)


def test_a_program_that_says_what_it_is_comes_first() -> None:
    text = "# Collective test starting: reduce_scatter_perf\n" + NEW
    assert parse_nccl_tests(text.encode(), "all_reduce").collective == "reduce_scatter"


def test_rows_of_one_size_are_averaged() -> None:
    row = "     1048576        262144     float     sum      -1    60.00   17.48   26.21      0\n"
    table = parse_nccl_tests((NEW + row).encode(), "x")
    assert table.times == (12_500.0, 50_000.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello", "x: it has no row of sizes and times; give the output of nccl-tests"),
        (NEW.replace("# ", "; ").replace("#       size", "#       size"), "no row of sizes"),
        (NEW.replace(RANKS, ""), "no line names a rank"),
        (NEW.replace("26.21   39.32", "26.21   30.00"), "it does not say which collective it is"),
        (NEW.replace("12.50", " oops"), "x, line 13: 'oops' is not a number"),
        (NEW.replace("    12.50    0.00    0.00      0    12.00", ""), "a row of 5 fields"),
    ],
)
def test_other_text_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_nccl_tests(text.encode(), "x")
