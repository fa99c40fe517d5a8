"""Cases to outcomes: what is planned on which backend, run, and judged.

A `Pairing` and backends enter `plan_pairing`; `Item`s leave. An `Item` enters `runner.run_item`; an `Outcome` for each
case leaves, its `Record` complete. A group of families (values, signatures, invariants, rejections, drawn cases) plans
and judges its own. All rooms before this one may be called; pytest, the command line and `kt.check` call it.
"""
