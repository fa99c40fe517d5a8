"""Execution: from a pairing and backends to items, and from an item to the outcome of each of its cases.

`planning.plan_pairing` takes a `Pairing` and backends and returns `Item`s; `runner.run_item` takes an `Item` and yields
an `Outcome` with a complete `Record` for each case. pytest, the command line and `kt.check` call these two. The modules
in the order in which to read them:

1. `settings` (with `setting_types`) has every setting of a run. `item` defines `Item`, `Outcome` and `Group`, the
   interface of a group of families. `group_registry` has all groups; `planning` makes items and the plan of a run.
2. `runner` runs the cases of an item, with declared xfails (`xfails`), a time limit (`time_budget`), and the
   records of earlier attempts that crashed.
3. `cache` has everything that the cases of a pairing share: traces, executables (compiled by `compile_pool`),
   expectations (`cached_expectation`), and what is known of kernels without rounding (`formula_cache`). A
   `bounded_store` keeps the first answers that fit. `process_state` is the state of the process that is not bound to a
   pairing.
4. `output_comparison` compares outputs with their expected values. Every group that has values goes through it, except
   `production_group`, which samples them.
5. The groups: `value_groups` (values against the oracle; signatures that are only compiled), `invariant_group`
   (other calls whose results are known: `invariant_context`, `invariants`, `batch_slices`), `production_group` (sizes
   too large to hold, with `input_dependencies` and `addresses`), `rejection_group` (calls that must raise), and
   `fuzz_group` (cases that Hypothesis draws by `strategies`).
6. Two ways to save time: `batching` runs several cases of a signature at once, `fast_path` runs cases without compiling
   and accepts only passes.
"""
