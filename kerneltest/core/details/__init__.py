"""Failures as data: one frozen dataclass for each kind, from which its text is rendered. Nothing parses that text."""

from typing import Annotated

from pydantic import Field

from kerneltest.core.details.build import NotBuilt, ResourceExceeded, Stage
from kerneltest.core.details.memory import (
    Access,
    IndexOverflow,
    MemoryFault,
    Race,
    Undefined,
    UndefinedCause,
    UndefinedSource,
    Visit,
)
from kerneltest.core.details.process import Crashed, DeviceLost, Hung
from kerneltest.core.details.raised import Raised, Stated, Unavailable
from kerneltest.core.details.values import InputModified, Mismatch, Nondeterministic

Detail = Annotated[
    Mismatch
    | Nondeterministic
    | InputModified
    | MemoryFault
    | Race
    | Undefined
    | NotBuilt
    | ResourceExceeded
    | Raised
    | Stated
    | Unavailable
    | Crashed
    | Hung
    | DeviceLost,
    Field(discriminator="kind"),
]

__all__ = [
    "Access",
    "Crashed",
    "Detail",
    "DeviceLost",
    "Hung",
    "IndexOverflow",
    "InputModified",
    "MemoryFault",
    "Mismatch",
    "Nondeterministic",
    "NotBuilt",
    "Race",
    "Raised",
    "ResourceExceeded",
    "Stage",
    "Stated",
    "Unavailable",
    "Undefined",
    "UndefinedCause",
    "UndefinedSource",
    "Visit",
]
