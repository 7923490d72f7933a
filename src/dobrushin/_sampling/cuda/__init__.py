"""Sampling on an NVIDIA GPU, with the same draws as on the CPU; behind the extra `cuda`.

`on_device` turns a kernel of `_sampling` or `_coalescence` into one whose states are on the GPU; `chosen` does so where
that is wanted.
"""

from dobrushin._sampling.cuda.device import is_available
from dobrushin._sampling.cuda.kernels import DeviceKernel, chosen, on_device, pays

__all__ = ["DeviceKernel", "chosen", "is_available", "on_device", "pays"]
