"""Runs this folder as a program: `python PATH/probe`."""

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    # Python has put this folder on its path. The package is in the folder above, which is on the path only while it is
    # imported, so that nothing in it hides an installed package.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    importlib.import_module("probe")
    del sys.path[0]
    sys.exit(importlib.import_module("probe.command").main())
