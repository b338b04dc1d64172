"""Slow, plain Python twins of the kernels, written from what the kernels promise.

Nothing here imports Nadi: an oracle that shares code with what it checks shares its faults.
"""
