"""Mutation tests of pairings: kernels with one small bug each, and whether the pairing would find it.

A mutant is made from the kernel's jaxpr, so that any kernel can be mutated without its source. `operators` is the
registry of the changes; the modules that end in `_operators` contain kerneltest's own, each a few lines under the name
of its bug. `edits` makes the equations of a change, `kernel_mutants` finds the places where operators apply, and
`mutant_tracer` traces mutants in place of the kernel. `judging` plans a pairing and runs its cases on each mutant until
one finds it; `differences` finds the cases that need no run. A `trial` is the result for one mutant, and `score` counts
them. `advice` tries declarations that find more, `mutation_text` formats the results, `mutation_workers` spreads the
work over processes, and `mutate_command` is `kerneltest mutate`. With `--kt-mutate`, `mutate_plugin` loads
`mutant_items`: a run then judges the mutants of each pairing after the pairing itself.

`kernel_coverage` records the states of masks, branches, loops and grids while a kernel is evaluated, and
`pairing_coverage` lists those that no planned case exercises: `kerneltest coverage`.
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
