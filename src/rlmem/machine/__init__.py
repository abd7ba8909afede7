"""What there is: RAM and what limits it, swap, cores, GPUs."""

from rlmem.machine.read import read_machine
from rlmem.machine.values import Gpu, Machine, as_dict, budget_machine

__all__ = ["Gpu", "Machine", "as_dict", "budget_machine", "read_machine"]
