"""What live processes take: readings of /proc, and a sampler of process trees."""

from rlmem.observe.proc import file_bytes, high_water_bytes, process_tree, pss_bytes, reset_high_water, rss_bytes
from rlmem.observe.sampler import TreePeak, TreeSampler

__all__ = [
    "TreePeak",
    "TreeSampler",
    "file_bytes",
    "high_water_bytes",
    "process_tree",
    "pss_bytes",
    "reset_high_water",
    "rss_bytes",
]
