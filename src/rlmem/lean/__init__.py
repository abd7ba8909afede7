"""Buffers that hold each byte of observation once, bit-exactly: the core, free of any framework."""

from rlmem.lean.column import Column
from rlmem.lean.layout import Layout, find_layout

__all__ = ["Column", "Layout", "find_layout"]
