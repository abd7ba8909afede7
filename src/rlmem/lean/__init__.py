"""Buffers that hold each byte of observation once, bit-exactly: the core, free of any framework."""

from rlmem.lean.column import Column
from rlmem.lean.inspection import Inspection, inspect
from rlmem.lean.layout import Layout, find_layout

__all__ = ["Column", "Inspection", "Layout", "find_layout", "inspect"]
