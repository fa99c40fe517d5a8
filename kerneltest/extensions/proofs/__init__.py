"""Proofs at all sizes: the lowered code of a kernel stays in bounds, overflows no index and has no race.

`form_learning` learns how the code depends on sizes, `symbolic_execution` follows addresses and masks through it,
`obligations` states the properties to prove, `solver` asks z3, and `proof_search` confirms a counterexample in the
simulator. z3 is imported on first use.
"""

from kerneltest.execute.settings import FLAG, Setting, register_setting

PROVE = register_setting(
    Setting(
        "prove",
        False,
        FLAG,
        "also prove kernels in bounds and free of races over all sizes, on simulate:* (needs kerneltest[prove])",
        planned=True,
        command="if set",
    ),
    __name__,
)
