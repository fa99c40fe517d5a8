"""Failures as data: one frozen dataclass for each kind, from which its text is rendered. Nothing parses that text."""

from kerneltest.core.details.errors import (
    ISSUES,
    Contradicted,
    Crashed,
    DeviceLost,
    Hung,
    InternalError,
    NoPallasCall,
    NotBuilt,
    Raised,
    ResourceExceeded,
    Stage,
    Stated,
    Unavailable,
)
from kerneltest.core.details.memory_faults import (
    Access,
    IndexOverflow,
    MemoryFault,
    Race,
    Undefined,
    UndefinedCause,
    UndefinedSource,
    Visit,
)
from kerneltest.core.details.wrong_values import (
    SLIGHT,
    ErrorCause,
    InputModified,
    Mismatch,
    MismatchCause,
    Nondeterministic,
    WrongDtype,
)

Detail = (
    Mismatch
    | WrongDtype
    | Nondeterministic
    | InputModified
    | MemoryFault
    | Race
    | Undefined
    | NotBuilt
    | ResourceExceeded
    | Raised
    | InternalError
    | Stated
    | Unavailable
    | NoPallasCall
    | Contradicted
    | Crashed
    | Hung
    | DeviceLost
)

__all__ = [
    "ISSUES",
    "SLIGHT",
    "Access",
    "Contradicted",
    "Crashed",
    "Detail",
    "DeviceLost",
    "ErrorCause",
    "Hung",
    "IndexOverflow",
    "InputModified",
    "InternalError",
    "MemoryFault",
    "Mismatch",
    "MismatchCause",
    "NoPallasCall",
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
    "WrongDtype",
]
