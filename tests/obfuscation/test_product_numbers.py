"""Whoever knows the code must not find true sides by FLOPs and bytes of products."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from nadi.sharing.attacks.attack_features import TimedProducts, side_by_durations
from nadi.sharing.obfuscation.obfuscate import _computed, _shape
from nadi.sharing.obfuscation.product_numbers import (
    bytes_forms,
    flops_forms,
    rank_of_estimate,
    rank_of_side,
)
from nadi.sharing.obfuscation.secret_key import SecretKey
from nadi.systems.library import load_system
from nadi.systems.prices.price_list import price
from nadi.trace.operations import no_operations

HIDDEN, TOKENS, INNER = 4096, 8192, 14336
SHAPES = [
    (1, TOKENS, HIDDEN, HIDDEN), (1, TOKENS, INNER, HIDDEN), (1, HIDDEN, INNER, TOKENS),
    (1, HIDDEN, HIDDEN, HIDDEN),
]  # fmt: skip
BFLOAT = 5  # the position of two bytes a side in the forms of bytes
KEYS = 60


def _keys() -> list[SecretKey]:
    random = Random(20261124)
    return [SecretKey(random.randbytes(32)) for _ in range(KEYS)]


def _moved(key: SecretKey) -> tuple[int, list[tuple[int, ...]]]:
    shapes = [tuple(_shape(list(shape), key, 0.2)) for shape in SHAPES]
    return shapes[-1][1], shapes


def test_sides_are_found_where_bytes_were_scaled() -> None:
    """The rule of version 0.3: true bytes times the ratio of moved to true product, to 2/3."""
    ranks = []
    for key in _keys():
        side, shapes = _moved(key)
        products = []
        for true, moved in zip(SHAPES, shapes, strict=True):
            ratio = np.prod(moved, dtype=float) / np.prod(true, dtype=float)
            number = bytes_forms(true)[BFLOAT]
            products.append((moved, flops_forms(moved)[1], round(number * ratio ** (2 / 3))))
        ranks.append(rank_of_side(HIDDEN, side, products))
    assert np.mean(ranks) > 0.65


def test_sides_are_not_found_where_numbers_follow_from_moved_sides() -> None:
    ranks = []
    for key in _keys():
        side, shapes = _moved(key)
        products = [
            (
                moved,
                _computed(flops_forms, true, moved, flops_forms(true)[1]),
                _computed(bytes_forms, true, moved, bytes_forms(true)[BFLOAT]),
            )
            for true, moved in zip(SHAPES, shapes, strict=True)
        ]
        ranks.append(rank_of_side(HIDDEN, side, products))
    assert abs(np.mean(ranks) - 0.5) < 0.1


def test_a_number_of_heads_that_stays_tells_the_hidden_size() -> None:
    side, _ = _moved(_keys()[0])
    heads, tokens = 5, 1000
    products = [((heads, tokens, tokens, 128), 0, 0)]
    assert rank_of_side(5120, 4800, products) == 1
    assert rank_of_side(HIDDEN, side, [((40, tokens, tokens, 128), 0, 0)]) < 1


def test_large_numbers_of_heads_move() -> None:
    heads = {_shape([40, 1, 7, 64], key, 0.2)[0] for key in _keys()}
    assert heads <= {*range(32, 49)}
    assert len(heads) > 9
    assert all(_shape([1, 2, 5, 7], key, 0.2) == [1, 2, 5, 7] for key in _keys())


def test_durations_tell_a_side_to_who_has_the_curves() -> None:
    """Which is why level shapes does not promise to hide it from them."""
    device = load_system("dgx-h100", 8).compute.device
    assert device
    operations = no_operations(len(SHAPES))._replace(shape=np.array(SHAPES))
    operations.op_class[:] = 1
    random = np.random.default_rng(0)
    duration = price(operations, device).duration * np.exp(0.01 * random.standard_normal(4))
    for key in _keys()[:5]:
        side, shapes = _moved(key)
        flops = np.array([flops_forms(shape)[1] for shape in shapes])
        moved = operations._replace(shape=np.array(shapes), flops=flops)
        found = side_by_durations(side, TimedProducts(moved, duration), device)
        assert abs(found / HIDDEN - 1) < 0.05
        assert rank_of_estimate(HIDDEN, side, found) > 0.8


def test_numbers_that_no_form_explains_are_left_to_the_grid() -> None:
    assert _computed(bytes_forms, SHAPES[0], SHAPES[1], 12345) == -1


@pytest.mark.parametrize("forms", [flops_forms, bytes_forms])
def test_every_form_grows_with_every_side(forms: object) -> None:
    assert callable(forms)
    small, large = forms((2, 64, 128, 256)), forms((4, 128, 256, 512))
    assert all(0 < one < other for one, other in zip(small, large, strict=True))
