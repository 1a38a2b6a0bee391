"""The GPU kernels of ops, one file each: the only place that imports triton."""
