"""Judges a finding of kerneltest again. Run it where pytest ran; it needs kerneltest and the suite.

Exits with 1 if the finding still occurs, with 0 if it does not, and with 2 if it cannot be judged.
"""

import runpy
import sys
from pathlib import Path

# The finding. Names are imported; nothing here is code.
CASE: str = ""
BACKEND: str = ""
# Reproduction.

if __name__ == "__main__":
    sys.argv[1:] = ["repro", str(Path(__file__).parent.parent), CASE, "--backend", BACKEND]
    runpy.run_module("kerneltest", run_name="__main__")
