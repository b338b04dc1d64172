"""What ``nadi.pricing`` gives; each name is loaded when it is first used."""

from .operations import (
    Operations as Operations,
    dtype_code as dtype_code,
    op_class_code as op_class_code,
)
from .price_list import SOURCES as SOURCES, PriceList as PriceList, price as price
