"""The first steps in a project: `kerneltest init` and `kerneltest doctor`.

For `init`, `calls` and `call_recorder` obtain example calls of a kernel, `probe` traces it at other lengths, `axes`
infers from the traces which axes share a dim, `lengths` infers the lengths that a dim admits, `naming` names the dims,
and `init` writes the pairing, whose text `declaration` and `literals` produce. `doctor` lists the backends that this
machine lacks.
"""
