"""Rounds an oracle's own operations as a kernel's machine would, many times at once, to see how far results move.

`watched` holds the arrays, `machine` rounds, `ufuncs`, `products` and `functions` say what each NumPy function asks of
it, `spread` evaluates an oracle so and says how far its results move, `pullback` differentiates it backwards.
"""
