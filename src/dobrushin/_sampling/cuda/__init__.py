"""Kernels for NVIDIA GPUs that give the same draws as the kernels on the CPU; they need the extra `cuda`."""
