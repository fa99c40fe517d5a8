"""The values that a kernel should give, and how far a correct kernel may be from them.

`evaluation` evaluates an oracle on a case and returns an `Expectation` of the outputs, in float64 and int64; `gradient`
returns one of the gradient. No bound depends on what a kernel computed.
"""
