"""What a user says: arguments, dims, error models, expected findings, rejections.

A kernel, its oracle and declarations enter by `oracle_for`; a `Pairing` leaves, checked against both, or a
`DeclarationError`. Only `core` may be called, so that a declaration runs nothing and loads no JAX of its own.
"""
