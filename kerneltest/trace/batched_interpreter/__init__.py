"""Evaluates a kernel in NumPy, as Pallas' interpreter would, for many inputs at once and without a compiler.

Every value has one axis more than in the jaxpr, in front: its rows. There is one row for each set of inputs, or a
single one where all are alike. Memory works likewise, so control flow that differs among rows is followed for each part
of them. What is not known here raises `UnknownError`, and the kernel goes to JAX's own interpreter.
"""
