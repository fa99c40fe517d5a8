"""The first steps in a project: `kerneltest init` and `kerneltest doctor`.

For `init`, `example_calls` and `call_recorder` obtain example calls of a kernel, `trace_probe` traces it at other
lengths, `dim_inference` infers from the traces which axes share a dim, `length_inference` infers the lengths that a dim
admits, and `dim_names` names the dims. `init` writes the pairing, whose text `declaration` and `literals` produce.
`doctor` lists the backends that this machine lacks.
"""
