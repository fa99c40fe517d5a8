"""A simulator of lowered Triton IR in NumPy: all programs at once, on memory that is checked element by element.

`simulation` turns bytecode into plain operations (`ir`), and `operations` defines what each computes. A `Simulation`
takes these and the contents of buffers (`memory`). It leaves the results in the buffers, with their undefined elements
and every wrong use of memory. `backend` makes a backend of it; `at_scale` runs some programs at sizes too
large to allocate.
"""
