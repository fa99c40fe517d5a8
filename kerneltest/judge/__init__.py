"""The judgement of outputs: which are wrong, why, and what may have caused it.

`compare` compares an output with its expected values, and locates the wrong elements. `formula` judges a kernel's
formula and its rounding, `result_dtypes` the dtypes of outputs. `mismatch_evidence` makes the record of a wrong output,
with a diagnosis by the rules of `diagnose`. `special_values` lists the special values among a case's inputs.

A diagnosis may evaluate the oracle and trace the kernel again, but never runs the kernel on a backend, and changes no
verdict.
"""
