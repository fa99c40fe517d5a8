"""Fault localisation: from the findings of a suspect to its smallest case and to the line that is wrong.

The method is mutation-based (Papadakis and Le Traon, "Metallaxis-FL", 2015): a mutant is the kernel with one small
change, and a change that makes failing cases right points at the bug. A claim about a cause always follows such an
experiment. The steps, and the modules in the order in which to read them:

1. `suspect_reduction` takes the findings of a suspect, has `kerneltest.shrink` find the smallest case that fails in the
   same way, and asks the other modules for its cause.
2. `fault_location` replays that case and a few others with one mutant after another. It names the line of the cheapest
   mutant that makes them all right: confirmed if no other line does so as well, with the alternatives if there are any.
3. `case_replay` runs a case's inputs through the original kernel or a mutant in the simulator, and compares the outputs
   with the expected ones, bit for bit or within the bounds of the original comparison.
4. `mutable_kernel` is a kernel lowered to Triton IR that runs in the simulator with a patch: other bodies of its Pallas
   calls, or other values in the function around them. `listing` has the operations of a body with their source lines.
5. `mutants` collects the mutants of a kernel. Mutation operators make them: `code_mutations` (comparisons, constants,
   loops, operands), `mask_mutations` (masks of loads and stores), `precision_mutations` (casts and accumulators), and
   `call_mutations` (the grid and the index maps).
6. `special_origin` finds where a wrong NaN or infinity comes from without mutants: `special_trace` notes the operations
   at which they appear or are lost, and a replay with these repaired shows which of them matter.
7. `reruns` covers interpreters instead of the simulator: it changes the content of unwritten memory, or the order of
   the programs. `access_expression` spells out the offset of an access that is out of bounds or races.
"""
