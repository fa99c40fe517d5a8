"""The first steps in a project: `kerneltest init` and `kerneltest doctor`.

For the first, `example_calls` obtains example calls of a kernel, `trace_probe` traces it at other lengths, and
`inference` infers from the traces which axes share a dim, and the lengths that a dim admits. `declaration` writes the
pairing. `doctor` lists the backends that this machine lacks.
"""
