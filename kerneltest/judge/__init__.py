"""Whether outputs are what was expected, and if not, what that looks like.

Outputs, expected values and bounds enter `compare`; a `Comparison` leaves. For a finding, `evidence` adds to its record
where wrong elements lie, what they resemble, and the arrays around them. A diagnosis may ask the oracle again and trace
the kernel, and runs neither on a backend.
"""
