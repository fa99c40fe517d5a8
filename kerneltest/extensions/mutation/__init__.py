"""Mutation tests of pairings: kernels with one small bug each, and whether the pairing would find it.

A mutant is made from the kernel's jaxpr, so that any kernel can be mutated without its source. `operators` is the
registry of the changes, with kerneltest's own; `mutants` finds the places where they apply, and traces mutants in place
of the kernel. `judging` plans a pairing and runs its cases on each mutant until one finds it. `results` counts the
trials, tries declarations that find more, and formats both. `run` spreads the work over processes, for `kerneltest
mutate` in `commands`. With `--kt-mutate`, `plugin` has a run judge the mutants of each pairing after the pairing.

`coverage` records the states of masks, branches, loops and grids while a kernel is evaluated, and lists those that no
planned case exercises: `kerneltest coverage`.
"""

from kerneltest.execute.settings import FLAG, Setting, SettingKind, register_setting

MUTATE = register_setting(
    Setting("mutate", False, FLAG, "also judge each pairing by the bugs that it finds in mutants of its kernel"),
    __name__,
)
LEAST = register_setting(
    Setting(
        "mutate_least",
        0.0,
        SettingKind("a share from 0 to 1", float, lambda share: 0 <= share <= 1, "{:g}".format),
        "with --kt-mutate, fail for a pairing that finds less than this share of mutants",
    ),
    __name__,
)
