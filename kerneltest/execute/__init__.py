"""Execution: from a pairing and backends to items, and from an item to the outcome of each of its cases.

`planning.plan_pairing` takes a `Pairing` and backends and returns `Item`s; `runner.run_item` takes an `Item` and yields
an `Outcome` with a complete `Record` for each case. pytest, the command line and `kt.check` call these two. The modules
in the order in which to read them:

1. `settings` has every setting of a run. `item` defines `Item`, `Outcome` and `Group`, the interface of a group of
   families. `planning` has all groups, and makes the items and the plan of a run.
2. `runner` runs the cases of an item, with declared xfails, a time limit (`time_budget`), and the records of earlier
   attempts that crashed.
3. `cache` has everything that the cases of a pairing share: traces, executables, expectations. `formula` has what is
   known of kernels without rounding.
4. `claims` compares outputs with the values that are accepted: of ordinary cases and of invariants. Every group that
   has values goes through it, except `production_group`, which samples them.
5. The groups: `value_groups` (values against the oracle; signatures that are only compiled; calls that must raise),
   `invariant_group` (other calls whose results are known, those of `invariants`), `production_group` (sizes too large
   to hold), and `fuzz_group` (cases that Hypothesis draws).
6. `batching` runs several cases of a signature at once, or on a fast path that compiles nothing and whose passes alone
   count. `verdict_key` decides whether verdicts are reused.
"""
