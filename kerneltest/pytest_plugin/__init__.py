"""The plugin: the only room that imports pytest.

pytest's options and the pairings of test modules come in; items, a plan, records, a report and an exit code go out.
`hooks` is what pytest calls. It loads the other rooms on first use, so that a run without pairings costs nothing.
"""
