"""What there is: RAM and what limits it, swap, cores, GPUs."""

from rlmem.machine.read import read_machine
from rlmem.machine.values import GIVEN, Gpu, Machine, as_dict, budget_machine

__all__ = ["GIVEN", "Gpu", "Machine", "as_dict", "budget_machine", "read_machine"]
