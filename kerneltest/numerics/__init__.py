"""Error bounds: closed forms, and an oracle whose own operations are rounded as a kernel's machine rounds them.

`tracked` holds the arrays that an oracle gets in place of NumPy's, in all samples at once. `ufuncs`, `products`,
`array_functions` and `decompositions` define how NumPy's functions act on them, and `rounding_model` rounds;
machines that give the same answers to an `asked_precision` share its samples. `spread` evaluates an oracle in samples,
`error_budget` attributes the spread to operations, `pullback` differentiates. `rounding_bounds`, `closed_forms`,
`inner_products` and `perturbation` compute the bounds of error models.

It imports only `core`.
"""
