"""Fault localisation: from the findings of a suspect to its smallest case and to the line that is wrong.

The method is mutation-based (Papadakis and Le Traon, "Metallaxis-FL", 2015): a mutant is the kernel with one small
change, and a change that makes failing cases right points at the bug. A claim about a cause always follows such an
experiment. The steps, and the modules in the order in which to read them:

1. `suspect_reduction` takes the findings of a suspect, has `kerneltest.shrink` find the smallest case that fails in the
   same way, and asks the other modules for its cause.
2. `fault_location` has that case and a few others replayed with one mutant after another, in two ways: first from the
   kernel's jaxpr if the case fails in an interpreter, first in the simulator if not, and for NaN and infinities.
   `mutant_search` names the line of the cheapest mutant that makes them all right: confirmed if no other line does so
   as well, with the alternatives if there are any.
3. In the simulator, `case_replay` runs a case's inputs through the original kernel or a mutant, and compares the
   outputs with the expected ones, bit for bit or within the bounds of the original comparison. `mutable_kernel` is a
   kernel lowered to Triton IR that runs with a patch: other bodies of its Pallas calls, or other values in the function
   around them. `listing` has the operations of a body with their source lines. `mutants` collects the mutants, made by
   `code_mutations` (comparisons, constants, loops, operands), `mask_mutations` (masks of loads and stores),
   `precision_mutations` (casts and accumulators), `call_mutations` (the grid and the index maps), and `call_repairs`
   (programs that share a block).
4. From the jaxpr, nothing is lowered, so that kernels for TPUs and gradients can be searched, too. `evaluated_kernel`
   evaluates a kernel in float64, without rounding and with each float rounded to its dtype; `equation_replay` asks that
   both be right. `equation_sites` finds the equations of one place in the source, `equation_edits` replaces them, and
   `equation_mutants` collects the mutants: those of `equation_mutations` (comparisons, constants, arithmetic, removals,
   operands), of `insertions` (a mask, a guard, a rescale, a shift), of `call_mutations` and `call_repairs`, and results
   that are not rounded or do not wrap.
5. `special_origin` finds where a wrong NaN or infinity comes from without mutants: `special_trace` notes the operations
   at which they appear or are lost, and a replay with these repaired shows which of them matter.
6. `reruns` covers interpreters instead of the simulator: it changes the content of unwritten memory, or the order of
   the programs. `access_expression` spells out the offset of an access that is out of bounds or races.
"""
