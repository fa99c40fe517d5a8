"""The ids of pairings, items, backends, source lines and shards: each is formatted and taken apart here alone.

Records, plans and commands hold ids as text, which other hands may have written: any text has parts, some of them "".
"""

import re
from dataclasses import dataclass
from typing import Self

ANY = "*"  # the dtype, group and family of a backend that a machine lacks: one cell stands for all of them
_MOST_LINE = 2**31  # of a file


@dataclass(frozen=True, slots=True)
class PairingId:
    """`FILE::NAME`, the node id that pytest gives a pairing."""

    file: str  # relative to the folder of pytest's configuration
    name: str = ""  # in the file, after its classes: `softmax`, `TestNorms::norms[0]`; "" for a whole file

    @classmethod
    def parse(cls, text: str) -> Self:
        """Takes an id of a pairing apart, or of an item, whose `name` then ends in brackets."""
        file, _, name = text.partition("::")
        return cls(file, name)

    def __str__(self) -> str:
        return f"{self.file}::{self.name}" if self.name else self.file

    @property
    def scope(self) -> str:
        """The file with the classes around the pairing; "" if the id is a bare name."""
        return str(self).rpartition("::")[0]

    @property
    def own_name(self) -> str:
        return str(self).rpartition("::")[2]

    @property
    def classes(self) -> list[str]:
        return self.name.split("::")[:-1]

    @property
    def variable(self) -> str:
        """The variable that holds the pairing: `norms` of `TestNorms::norms[0]`."""
        return self.own_name.partition("[")[0]


@dataclass(frozen=True, slots=True)
class ItemId:
    """`PAIRING[BACKEND-DTYPE]`, the node id of a pytest item; `PAIRING[BACKEND]` if the backend is unavailable."""

    pairing: str  # the pairing's node id
    part: str  # of the pairing: `interpret-tpu-float32`

    @classmethod
    def of(cls, pairing: str, backend: str, dtype: str = "") -> Self:
        return cls(pairing, f"{backend}-{dtype}" if dtype else backend)

    @classmethod
    def parse(cls, text: str) -> Self:
        pairing, _, part = text.removesuffix("]").rpartition("[")
        return cls(pairing, part)

    def __str__(self) -> str:
        return f"{self.pairing}[{self.part}]"

    @property
    def unavailable(self) -> Self:
        """The id that the item has where its backend is unavailable."""
        return type(self)(self.pairing, self.part.rpartition("-")[0])


@dataclass(frozen=True, slots=True)
class BackendId:
    """`TIER:TARGET`, or a name such as `interpret-tpu`, which has no target."""

    tier: str
    target: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        tier, _, target = text.partition(":")
        return cls(tier, target)

    def __str__(self) -> str:
        return f"{self.tier}:{self.target}" if self.target else self.tier


@dataclass(frozen=True, slots=True)
class Place:
    """`FILE:LINE`, a line of source, counted from 1."""

    file: str
    line: int

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Takes a place apart; returns None if the text is none."""
        file, _, line = text.rpartition(":")
        if not file or not line.isascii() or not line.isdecimal() or len(line) > len(str(_MOST_LINE)):
            return None
        return cls(file, int(line)) if 0 < int(line) < _MOST_LINE else None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class RunShard:
    """One part of a run that several machines share: number `number` of `count`, counted from 1."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Returns the shard that `i/n` names, or None for ""; ValueError unless i is from 1 to n."""
        if not text:
            return None
        match = re.fullmatch(r"([1-9]\d{0,17})/([1-9]\d{0,17})", text)
        if not match or int(match[1]) > int(match[2]):
            raise ValueError(text)
        return cls(int(match[1]), int(match[2]))
