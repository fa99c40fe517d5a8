"""Same bits: claims of `invariant_to=` certified by the expressions that a kernel computes, without a device."""
