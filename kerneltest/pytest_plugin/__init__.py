"""The pytest plugin: the only room that imports pytest.

pytest's options and the pairings of test modules enter; items, a plan, records, a report and an exit code leave.
`hooks` is what pytest calls. `pytest_run.PytestRun` holds one object for each concern: settings, `run_folder` (with the
plan), `collection`, `dispatch` (executors: `worker` here, and `isolation` in another process), `incremental` and
`summary`. Other rooms are loaded on first use, so that a run without pairings costs nothing.

pytest compiles every module of a plugin anew to rewrite its assertions. kerneltest's modules have none, so this package
has Python import them: from installed bytecode, which takes seconds less where no other bytecode can be written.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder


class PlainImports(MetaPathFinder):
    """Finds kerneltest's modules as Python does, before pytest's finder rewrites them."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        return PathFinder.find_spec(fullname, path) if fullname.startswith("kerneltest.") else None


sys.meta_path.insert(0, PlainImports())
