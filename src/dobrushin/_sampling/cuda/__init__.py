"""Kernels on an NVIDIA GPU, with the same draws as the kernels of `_sampling` on the CPU; needs the extra `cuda`."""
