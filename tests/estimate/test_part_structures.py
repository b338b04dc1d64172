"""Programs shared by many ways, with the sizes of one: the same as if generated for it alone."""

import msgspec
import pytest
from hypothesis import given, strategies as st

from nadi.estimates.execution import DATATYPES
from nadi.estimates.layer_programs import Variant, sizes_of, structures_of
from nadi.models import load_language_model
from nadi.trace.operations import DTYPE_NAMES, OP_CLASSES
from tests.reference.generated_parts import generated_parts

_SUMS = ("all_reduce", "reduce_scatter")
MODELS = [
    "gpt3-175b",
    "megatron-22b",
    "llama3-70b",
    "mixtral-8x7b",
    "deepseek-v3",
    "qwen3-235b-a22b",
]


@pytest.mark.parametrize("name", MODELS)
@given(data=st.data())
def test_shared_programs_are_those_that_are_generated(name: str, data: st.DataObject) -> None:
    model = load_language_model(name)
    degree = data.draw(st.sampled_from([1, 2, 4, 8, 16, 64]))
    splits = data.draw(st.booleans())
    spread, shares = 1, 0  # of experts, ranks that have some each, and that have a part of each
    if model.moe is not None and (splits or degree == 1):
        spread, shares = (data.draw(st.sampled_from(one)) for one in ([1, 2, 8], [0, 1, degree]))
    elif model.moe is not None:
        spread, shares = data.draw(st.sampled_from([1, 2, 8])), degree
    training = data.draw(st.booleans())
    is_multiquery = data.draw(st.booleans())
    decodes = not training and not (splits and degree > 1) and data.draw(st.booleans())
    parts = 1 if decodes else data.draw(st.sampled_from([1, 2, 8]))
    variant = Variant(
        degree, data.draw(st.sampled_from([1, 2, 3, 7, 64])), 2 if splits else 0,
        data.draw(st.integers(0, 2)) if training else 0, 1,
        data.draw(st.integers(0, len(DATATYPES) - 1)), int(is_multiquery), 0, int(training),
        data.draw(st.integers(0, 1)), spread, int(decodes), parts,
        data.draw(st.sampled_from([0, 16])) if training and model.mla is None else 0,
        shares,
    )  # fmt: skip
    sizes, structures = sizes_of(model, variant), structures_of(model, variant)
    own = model
    if is_multiquery and model.mla is None:
        own = msgspec.structs.replace(model, kv_heads=1)
    generated = generated_parts(own, variant)
    assert len(sizes.parts) == len(structures) == len(generated)
    for part, structure, both in zip(sizes.parts, structures, generated, strict=True):
        amounts = part.amounts
        for program, rows in zip(structure, both, strict=True):
            assert len(program.rows) == len(rows)
            for shared, slot, row in zip(program.rows, program.slots.tolist(), rows, strict=True):
                same = ("name", "phase", "comm_type", "role", "stream", "waits")
                assert all(getattr(shared, one) == getattr(row, one) for one in same)
                if row.work is None:
                    ranks = {"tp": degree, "cp": parts, "ep": spread}[row.role]
                    whole = int(amounts.whole[slot])
                    size = whole if row.comm_type in _SUMS else -(-whole // ranks)
                    assert size == row.comm_bytes, row.name
                    continue
                assert amounts.flops[slot] == row.work.flops
                assert amounts.bytes[slot] == row.work.bytes
                assert OP_CLASSES[amounts.op_class[slot]] == row.work.op_class
                assert DTYPE_NAMES[amounts.dtype[slot]] == row.work.dtype
                assert tuple(amounts.shape[slot]) == (row.work.shape or (-1, -1, -1, -1))
