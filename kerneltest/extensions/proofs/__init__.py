"""Proofs over all sizes: that the lowered code of a kernel stays in bounds, wraps no integer and has no race.

`forms` finds how the code depends on sizes, `evaluate` follows addresses and masks through it, `obligations` says what
must hold, `solver` asks z3, and `replay` confirms a counterexample in the simulator. z3 is imported on first use.
"""

from kerneltest.execute.setting_types import FLAG, Setting
from kerneltest.execute.settings import register_setting

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
