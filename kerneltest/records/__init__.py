"""What a run writes down, and what is read from it.

Verdicts with their evidence enter as `Record`s beside the run's `Plan`, and lie on disk as strict JSON lines. Out come
the runs of a folder, each held against its plan (`read_runs`), runs laid over each other (`merge`), what is thought to
be wrong (`suspects`), what changed between two runs (`compare`) and whose bug a finding is (`attributions`). The room
calls `core`, `declare` and `plan`, and nothing that runs a kernel.
"""
