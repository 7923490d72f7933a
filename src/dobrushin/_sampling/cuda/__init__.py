"""The kernels of `_sampling` once more, with the same draws, on an NVIDIA GPU; behind the extra `cuda`."""
