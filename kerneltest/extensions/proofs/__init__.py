"""Proofs over all sizes: that the lowered code of a kernel stays in bounds, wraps no integer and has no race.

`forms` finds how the code depends on sizes, `evaluate` follows addresses and masks through it, `obligations` says what
must hold, `solver` asks z3, and `replay` confirms a counterexample in the simulator. z3 is imported on first use.
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
