"""Kernels run under NVIDIA's compute-sanitizer, and between guard zones, in processes of their own."""
