"""Mutation tests of pairings: kernels with one small bug each, and whether the pairing would find it.

A mutant is made from the kernel's jaxpr, so that any kernel can be mutated without its source. `operators` is the
registry of the changes; the modules that end in `_operators` contain kerneltest's own, each a few lines under the name
of its bug. `edits` makes the equations of a change, `kernel_mutants` finds the places where operators apply, and
`mutant_tracer` traces mutants in place of the kernel. `judging` plans a pairing and runs its cases on each mutant until
one finds it; `differences` finds the cases that need no run. A `trial` is the result for one mutant, and `score` counts
them. `advice` tries declarations that find more, `mutation_text` formats the results, `mutation_workers` spreads the
work over processes, and `mutate_command` is `kerneltest mutate`.

`kernel_coverage` records the states of masks, branches, loops and grids while a kernel is evaluated, and
`pairing_coverage` lists those that no planned case exercises: `kerneltest coverage`.
"""
