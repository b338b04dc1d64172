"""Compiled loops over arrays: numba and numpy only, no knowledge of traces.

Each kernel takes arrays and returns arrays or an integer status; the shell that
calls it checks the input and raises. A slow plain-Python twin of each stands in
``tests/reference``.
"""
