"""Replay traces that name operators which reach files, processes, networks or devices: none runs.

Each operator of torch.ops that takes or gives a text, a storage, a device, a stream, a future, a
remote reference or an object of a library's own is named in a trace, with a path as each text, and
so is each that is not in the reviewed list. A listener sees every operator that a replay calls.
That it would notice one is shown too: with ``--allow`` the trace calls it, and writes the file.

Without PyTorch nothing can be replayed: one line says so.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _report import Checks

import nadi
from nadi.pytorch import OperatorChoice
from nadi.pytorch.rerunning.argument_rules import SAFE_OPERATORS

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.replay.foreign_traces import Given, float_tensor, index_tensor, write_calls

MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
FINE = (MM, [float_tensor(1, 4, 4), float_tensor(2, 4, 4)], [float_tensor(3, 4, 4)])
FROM_FILE = (
    "aten::from_file(str filename, bool? shared=None, int? size=0, *, ScalarType? dtype=None) -> "
    "Tensor"
)
FILL = "aten::fill_.Scalar(Tensor(a!) self, Scalar value) -> Tensor(a!)"
HARMLESS = {"TensorType", "IntType", "FloatType", "BoolType", "NumberType", "GeneratorType",
            "SymIntType", "SymBoolType", "ComplexType", "NoneType"}  # fmt: skip
FILE_OPERATOR = "aten::from_file"
AT_ONCE = 500  # operators in a trace


def kinds(kind: Any) -> set[str]:
    """Return the types that a type consists of."""
    name = kind.kind()
    if name in ("OptionalType", "ListType"):
        return kinds(kind.getElementType())
    if name == "TupleType":
        return {inner for one in kind.elements() for inner in kinds(one)}
    return {name}


def is_reaching(schema: Any) -> bool:
    """Return whether an operator takes or gives what is neither a tensor nor a number.

    The device on which it makes a tensor is not counted: a replay gives the chosen one instead.
    """
    taken = [one for one in schema.arguments if one.name != "device"]
    return any(kinds(one.type) - HARMLESS for one in (*taken, *schema.returns))


def _full_name(schema: Any) -> str:
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def example(kind: Any, trap: str, number: int) -> Any:
    """Return an argument of a type, as a trace would state it."""
    name = kind.kind()
    if name == "OptionalType":
        return example(kind.getElementType(), trap, number)
    if name == "ListType":
        return [example(kind.getElementType(), trap, number)]
    if name == "TensorType":
        return float_tensor(10 + number, 4, 4)
    if name in ("FloatType", "NumberType"):
        return 1.0
    if name in ("BoolType", "SymBoolType"):
        return True
    if name in ("IntType", "SymIntType"):
        return 1
    if name == "DeviceObjType":
        return Given("cpu", "Device", [], [])
    return trap if name == "StringType" else None


def call_of(schema: Any, trap: str) -> tuple[str, list[Any], list[Any]]:
    """Return a call of an operator, with arguments of the right types."""
    given = [example(one.type, trap, place) for place, one in enumerate(schema.arguments)]
    tensors = [index_tensor(50 + k, 4) for k, one in enumerate(schema.returns)
               if kinds(one.type) == {"TensorType"}]  # fmt: skip
    return str(schema), given, tensors


@contextmanager
def listening() -> Iterator[set[str]]:
    """Yield a set that gets the full name of every operator that Python calls meanwhile."""
    ops: Any = importlib.import_module("torch._ops")
    called: set[str] = set()
    before = {kind: kind.__call__ for kind in (ops.OpOverload, ops.OpOverloadPacket)}

    def heard(original: Any, name: Any) -> Any:
        def call(self: Any, /, *args: Any, **options: Any) -> Any:
            called.add(name(self))
            return original(self, *args, **options)

        return call

    ops.OpOverload.__call__ = heard(before[ops.OpOverload], lambda one: _full_name(one._schema))
    ops.OpOverloadPacket.__call__ = heard(
        before[ops.OpOverloadPacket], lambda one: one._qualified_op_name
    )
    try:
        yield called
    finally:
        for kind, original in before.items():
            kind.__call__ = original


def replayed(folder: Path, calls: list[Any], allow: tuple[str, ...] = ()) -> tuple[set[str], int]:
    """Replay calls; return the names of the operators that were called, and how many were not."""
    write_calls(folder, calls)
    with listening() as called:
        done = nadi.pytorch.replay(folder, repeats=1, operators=OperatorChoice(allowed=allow))
    return called, sum(done.skipped.values())


def main() -> None:
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed: NOTHING WAS REPLAYED (pip install torch)")
        print("0 of 0 exact")
        return
    torch: Any = importlib.import_module("torch")
    importlib.import_module("torch.distributed")
    checks = Checks()
    schemas = torch._C._jit_get_all_schemas()
    reaching = [one for one in schemas if is_reaching(one)]
    others = [one for one in schemas if not is_reaching(one) and one.name not in SAFE_OPERATORS]
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        trap = folder / "trap"
        trap.write_bytes(bytes(64))
        for what, chosen in (("reach further", reaching), ("are not in the list", others)):
            heard: set[str] = set()
            for first in range(0, len(chosen), AT_ONCE):
                calls = [call_of(one, str(trap)) for one in chosen[first : first + AT_ONCE]]
                named, _ = replayed(folder / f"{what[:3]}{first}", [FINE, *calls])
                heard |= named
            names = {_full_name(one) for one in chosen}
            wrong = sorted(heard & names)
            checks.add_many(
                f"operators that {what}: not called", len(names) - len(wrong), len(names),
                ", ".join(wrong[:5]),
            )  # fmt: skip
        checks.add("the file that they name is as it was", trap.read_bytes() == bytes(64))
        mapped = float_tensor(9, 16)
        calls = [FINE, (FROM_FILE, [str(trap), True, 16, 6], [mapped]),
                 (FILL, [mapped, 1.0], [mapped])]  # fmt: skip
        named, _ = replayed(folder / "refused", calls)
        checks.add("a call that maps a file is not made", FILE_OPERATOR not in named
                   and trap.read_bytes() == bytes(64))  # fmt: skip
        named, _ = replayed(folder / "allowed", calls, (FILE_OPERATOR,))
        checks.add("the listener hears it where --allow names it", FILE_OPERATOR in named)
        checks.add("and the file is written", trap.read_bytes() != bytes(64))
    checks.finish()


if __name__ == "__main__":
    main()
