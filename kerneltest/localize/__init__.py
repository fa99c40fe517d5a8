"""Fault localisation: from the findings of a suspect to its smallest case and to the line that is wrong.

The method is mutation-based (Papadakis and Le Traon, "Metallaxis-FL", 2015): a small change of the kernel that makes
failing cases right, a repair, points at the bug. A claim about a cause always follows such an experiment. The steps,
and the modules in the order in which to read them:

1. `suspect_reduction` takes the findings of a suspect, has `kerneltest.shrink` find the smallest case that fails in the
   same way, and asks the other modules for its cause.
2. `repair_search` has that case and a few others replayed with one repair after another, in two ways: first from the
   kernel's jaxpr if the case fails in an interpreter, first in the simulator if not, and for NaN and infinities. It
   names the line of the cheapest repair that makes them all right: confirmed if no other line does so as well, with the
   alternatives if there are any.
3. `operators` is the table of the mistakes that people make, which mutation tests share: they plant what localisation
   repairs. `call_operators` has those of the grid and the index maps, `insertions` repairs that add a mask, a guard, a
   factor or an offset. `sites` finds the equations of one place in the source, and `edits` replaces them.
4. From the jaxpr, nothing is lowered, so that kernels for TPUs and Mosaic GPU, and gradients, can be searched, too.
   `equation_replay` evaluates a kernel in float64, without rounding and with each float rounded to its dtype; both must
   be right. `edited_evaluation` does so with many edits at once.
5. In the simulator, `case_replay` runs a case's inputs through the original kernel or one with other bodies of its
   Pallas calls, or other values around them, and compares the outputs with the expected ones, bit for bit or within the
   bounds of the original comparison. `code_operators` has the operations of a body with their source lines, spells out
   the offset of an access, and mutates constants, comparisons, masks, loops, casts and operands.
6. `special_origin` finds where a wrong NaN or infinity comes from. A replay with some operations repaired at which they
   appear or are lost shows which of them matter. It also reruns interpreters with other contents of unwritten memory,
   or with the programs in order.
"""
