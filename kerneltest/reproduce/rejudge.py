"""Judges a finding of kerneltest again; needs kerneltest, and the suite where it was, from this report's folder.

Exits with 1 while it is found, with 0 once it is not.
"""

import runpy
import sys
from pathlib import Path

# What was found; the names in it are imported, and nothing in it is code.
CASE: str = ""
BACKEND: str = ""
# What shows it again.

if __name__ == "__main__":
    sys.argv[1:] = ["repro", str(Path(__file__).parent.parent), CASE, "--backend", BACKEND]
    runpy.run_module("kerneltest", run_name="__main__")
