"""Evidence of findings takes as long as it takes, so that what a finding says does not follow from a busy machine."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kerneltest.core.failures import Guard
from kerneltest.execute.cache import EvidenceLimits

GUARD = EvidenceLimits.guard  # of a real run


@contextmanager
def _guard(limits: EvidenceLimits) -> Iterator[Guard]:
    yield Guard(limits.process.internal_failures, math.inf if limits.seconds else 0.0)


def leave_time_for_evidence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EvidenceLimits, "guard", _guard)
