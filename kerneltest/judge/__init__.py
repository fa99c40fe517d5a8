"""Comparison of outputs with expectations, element by element.

`compare` takes outputs, expected values and bounds, and returns a `Comparison`. For a finding, `locate` finds the
pattern that the wrong elements make, `diagnose` recognises common mistakes, and `evidence` keeps the arrays around the
worst element. `contents` lists special values among the inputs. A diagnosis may evaluate the oracle and trace the
kernel again, but never runs the kernel on a backend.
"""
