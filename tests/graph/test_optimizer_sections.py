"""Where the operators of one parameter end in an optimizer that takes parameters in turn."""

from __future__ import annotations

import numpy as np
import pytest

from nadi.graph.optimizer_parts import _sections


@pytest.mark.parametrize(
    ("names", "parameters", "num_sections"),
    [
        ("abcabcabc", 3, 3),
        ("abcabcabc", 2, 3),  # one parameter belongs to no module
        ("ababab", 3, 3),
        ("abababab", 2, 2),  # a parameter may take the same twice
        ("aaaa", 3, 4),
        ("abcab", 2, None),
        ("abcabd", 2, None),
        ("abcabc", 3, None),
        ("a", 1, 1),
    ],
)
def test_sections_repeat(names: str, parameters: int, num_sections: int | None) -> None:
    codes = np.array([ord(name) for name in names])
    found = _sections(np.arange(codes.size), codes, parameters)
    assert (None if found is None else found.shape[0]) == num_sections
    if found is not None:
        assert (codes[found] == codes[found[0]]).all()
        assert found.ravel().tolist() == list(range(codes.size))
