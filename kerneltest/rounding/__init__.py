"""Rounds an oracle's own operations as a kernel's machine would, many times at once, to see how far results move.

`watched` holds the arrays, `machine` rounds, `ufuncs` and `functions` say what each NumPy function asks of it,
`samples` evaluates an oracle so and turns the spread into a bound, `pullback` differentiates it backwards.
"""
