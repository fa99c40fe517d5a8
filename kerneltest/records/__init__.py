"""Storage: what a run leaves on disk, and how it is read again.

`schema` and `evidence` define what is written: a `Plan` before anything runs, a `Record` for each case, an `End` after
the last one. `io` writes and reads them as strict JSON lines.
`journal` holds what each process is doing. `runs` reads a folder and reconciles its records with its plan, `overlay`
lays several runs over each other, `merge_shards` joins the shards of one run. `result_cache` keeps green items between
runs under a key of all that they follow from. Nothing here judges, groups or explains a finding.
"""
