"""What a kernel should give: the oracle's values, and how far a correct kernel may be from them.

A pairing, a signature and the values of a case enter; an `Expectation` of the outputs, or of the gradient, leaves, in
float64 and int64. Only `core`, `declare` and `plan` are called: a bound never depends on what a kernel computed.
"""
