"""The plan for a pairing: lengths, signatures, families of values, cases.

A pairing, a depth and a seed determine `Signature`s and `Case`s, the same in every process. An `ExplicitCase` holds
values that Hypothesis chose. Planning neither traces nor runs a kernel.
"""

DEPTHS = ("quick", "standard", "deep")  # here, since options name them before NumPy is imported
