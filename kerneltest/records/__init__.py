"""Storage: what a run leaves on disk, and how it is read again.

`schema` and `evidence` define what is written: a `Plan` before anything runs, a `Record` for each case, an `End` after
the last one. `record_files` writes and reads them as strict JSON lines. `journal` holds what each process is doing.
`runs` reads a folder, reconciles its records with its plan, and lays several runs over each other; `resume` goes on
with an interrupted run and joins the shards of one. `result_cache` keeps green items between runs under a key of all
that they follow from. Nothing here judges, groups or explains a finding.
"""
