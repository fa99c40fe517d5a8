"""Error bounds: closed forms, and an oracle whose own operations are rounded as a kernel's machine rounds them.

`tracked` holds the arrays that an oracle gets in place of NumPy's, in all samples at once. `ufuncs`, `products`,
and `array_functions` define how NumPy's functions act on them, and `rounding_model` rounds; machines that give the same
answers to what samples asked share them. `spread` evaluates an oracle in samples and attributes what moves to its
operations, `pullback` differentiates. `rounding_bounds` and `closed_forms` compute the bounds of error models.

It imports only `core`.
"""
