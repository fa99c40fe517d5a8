"""Judges a finding of kerneltest again; needs kerneltest, and its suite below the current folder.

Exits with 1 while it is found, with 0 once it is not.
"""

import sys
from pathlib import Path
from string import Template

from kerneltest.cli import main

sys.exit(main(["repro", str(Path(__file__).parent.parent), '7d5fd0e362ffd155', "--backend", 'simulate:sm_90']))
