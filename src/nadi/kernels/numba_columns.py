"""What numba takes classes of numbered names for: a module, whose names are constants."""

from typing import Any

from numba import types
from numba.extending import typeof_impl

from nadi.kernels.columns import Numbered


@typeof_impl.register(Numbered)
def _constants(numbered: Numbered, _: Any) -> Any:
    module: Any = types.Module
    return module(numbered)
