"""What each version of JAX lowers: for every primitive, dtype and target, with no GPU and no TPU.

Targets, primitives and versions of JAX enter, or maps that were saved. `LoweringMap`s leave, with what changed from one
to the next, and both as tables. Others call `measure`, `files`, `compare`, `table`, `terminal` and `markdown`; `probe`
is a program of its own, which only `measure` starts.
"""
