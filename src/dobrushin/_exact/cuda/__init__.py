"""The sums of `_exact` on an NVIDIA GPU; behind the extra `cuda`."""
