"""``python -m rlmem``."""

from rlmem.commands import entry

entry()
