"""Declarations: arguments, dims, error models, expected findings, rejections.

`oracle_for` takes a kernel, its oracle and the declarations, and returns a `Pairing` that has been checked, or raises a
`DeclarationError`. A declaration runs nothing and imports JAX only for pytrees and keys.
"""
