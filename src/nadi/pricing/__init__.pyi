"""What ``nadi.pricing`` gives; each name is loaded when it is first used."""

from .learned_prices import LearnedPrices as LearnedPrices, learn_prices as learn_prices
from .operations import (
    Operations as Operations,
    dtype_code as dtype_code,
    op_class_code as op_class_code,
)
from .price_list import SOURCES as SOURCES, PriceList as PriceList, price as price
from .priced_traces import price_job as price_job, price_trace as price_trace
