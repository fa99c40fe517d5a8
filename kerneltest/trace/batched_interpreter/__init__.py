"""Evaluates a kernel in NumPy, as Pallas' interpreter would, for many inputs at once and without a compiler.

Every array has one leading axis more than in the jaxpr: its rows, one for each set of inputs, or a single row if it is
the same for all of them. The memory behind references has rows as well, so control flow that differs between rows runs
once for each group of rows that agree. An unsupported operation raises `UnknownError`; the kernel is then left to JAX's
own interpreter.
"""
