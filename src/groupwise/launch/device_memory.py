"""What the device of a run has, and what the run holds of it: the GPU's memory, or the machine's."""

from __future__ import annotations

import torch

from groupwise.launch.machine import resident_bytes, usable_memory_bytes


def memory_limit_bytes(device: torch.device) -> int:
    """What a run on this device may hold: the memory of the GPU, or of the machine or its control group."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return usable_memory_bytes()


def memory_now_bytes(device: torch.device) -> int:
    """What is held at this moment: in the GPU's allocator, or resident in the host."""
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    return resident_bytes()
