"""The pytest plugin: the only room that imports pytest.

pytest's options and the pairings of test modules enter; items, a plan, records, a report and an exit code leave.
`hooks` is what pytest calls. `pytest_run.PytestRun` holds one object for each concern: `options` (settings),
`run_folder` and `plan_file`, `collection`, `dispatch` (executors: `worker` here, `isolation` in another process),
`result_reuse` with `incremental`, `summary`, and `xdist_crashes`. Other rooms are loaded on first use, so that a run
without pairings costs nothing.
"""
