"""Whether there may be a TPU, before libtpu is loaded."""

import os
from pathlib import Path


def expect_no_tpu() -> None:
    """Where no TPU is attached, libtpu asks the network for one as it starts, and complains of the answer: not here."""
    if not (any(Path("/dev").glob("accel*")) or Path("/dev/vfio").exists()):
        os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
