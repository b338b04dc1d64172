"""Lanes of tracks."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from nadi.files.timeline.timeline_values import find_lanes, lane_suffix
from tests.reference import lanes as oracle

slices = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 5)), max_size=20)


@given(slices)
def test_lanes_are_those_of_the_oracle(slices: list[tuple[int, int, int]]) -> None:
    track, start, duration = np.array(slices, dtype=np.int64).reshape(-1, 3).T.copy()
    lane, _ = find_lanes(track, start, start + duration)
    for number in range(3):
        rows = [row for row in np.lexsort((-duration, start)) if track[row] == number]
        expected = oracle.lanes([(start[row], start[row] + duration[row]) for row in rows])
        assert lane[rows].tolist() == expected


@given(slices)
def test_ends_close_what_was_opened_last(slices: list[tuple[int, int, int]]) -> None:
    track, start, duration = np.array(slices, dtype=np.int64).reshape(-1, 3).T.copy()
    end = start + duration
    lane, boundaries = find_lanes(track, start, end)
    assert sorted(boundaries.tolist()) == list(range(2 * track.size))
    open_slices: dict[tuple[int, int], list[int]] = {}
    times: dict[tuple[int, int], int] = {}
    for boundary in boundaries.tolist():
        row, is_end = divmod(boundary, 2)
        place = int(track[row]), int(lane[row])
        stack = open_slices.setdefault(place, [])
        time = int(end[row] if is_end else start[row])
        assert time >= times.get(place, 0)
        times[place] = time
        if is_end:
            assert stack.pop() == row
        else:
            stack.append(row)
    assert not any(open_slices.values())


def test_what_lies_in_a_moved_slice_moves_with_it() -> None:
    start, end = np.array([[0, 10], [5, 15], [6, 8], [12, 14], [16, 17]]).T.copy()
    assert find_lanes(np.zeros(5, dtype=np.int64), start, end)[0].tolist() == [0, 1, 1, 1, 0]


def test_further_lanes_have_names_of_their_own() -> None:
    names = [lane_suffix(lane) for lane in range(3)]
    assert names == ["", " (overlapping)", " (overlapping 2)"]
