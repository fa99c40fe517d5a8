"""What is asked of a pairing: lengths, signatures, families of values, cases.

A `Pairing`, a depth and a seed enter; `Signature`s and `Case`s leave, the same in every process, or a `DrawnCase` where
Hypothesis chose the values. `core` and `declare` may be called: a plan is made without tracing or running anything.
"""
