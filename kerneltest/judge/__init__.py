"""Comparison of outputs with expectations, element by element.

The modules in the order in which to read them:

1. `compare` takes one output with its expected values and bounds, and returns a `Comparison`. Its verdict is the case's
   verdict; nothing below can change it.
2. `mismatch_location` finds the pattern that the wrong elements make: past the last full block, shifted by a block, ...
3. `diagnose` recognises common mistakes, such as an accumulator of too few bits. Its rules return text for people,
   which nothing parses.
4. `mismatch_evidence` makes the record of a finding from these, with the arrays around the worst element.
5. `special_values` lists the special values among a case's inputs, and `input_magnitudes` the binades of their numbers,
   for passes too.

A diagnosis may evaluate the oracle and trace the kernel again, but never runs the kernel on a backend.
"""
