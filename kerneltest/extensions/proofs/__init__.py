"""Proofs at all sizes: the lowered code of a kernel stays in bounds, overflows no index and has no race.

`form_learning` learns how the code depends on sizes, `symbolic_execution` follows addresses and masks through it,
`obligations` states the properties to prove, `solver` asks z3, and `counterexample_replay` confirms a counterexample in
the simulator. z3 is imported on first use.
"""

from kerneltest.core.run_options import RunOption, register_option

register_option(
    RunOption(
        "kt_prove",
        "also prove over all sizes, on simulate:*, that kernels stay in bounds and have no races (needs "
        "kerneltest[prove])",
    ),
    __name__,
)
