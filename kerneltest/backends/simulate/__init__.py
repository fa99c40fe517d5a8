"""Lowered Triton IR, executed in NumPy: all programs at once, with an exact memory.

Bytecode enters `parse` and leaves as plain operations. A `Simulation` of these takes the buffers' contents and leaves
the results in them, with what is undefined there and every fault in the use of memory. `backend` makes a backend of
it; checks of addresses call `parse` and `Simulation` themselves.
"""
