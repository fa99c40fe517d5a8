"""A store of answers with a limit of memory."""

from collections.abc import Callable, Iterator, MutableMapping
from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_LATEST = 8  # the part of the memory, one in so many, for the latest answers


class BoundedStore(MutableMapping[_Key, _Value], Generic[_Key, _Value]):
    """Answers by key, up to a number of bytes: the first ones stay, and of the others the latest.

    Each backend goes through the same cases in the same order. If the oldest answers made room for others, each would
    be gone just before the next backend asks for it. The latest answer is kept whatever its size.
    """

    def __init__(self, max_bytes: int, size: Callable[[_Value], int]) -> None:
        """Initialises the instance.

        Args:
          max_bytes: that the answers may take.
          size: returns the bytes of an answer.
        """
        self._max_bytes, self._size = max_bytes, size
        self.clear()

    def compute_once(self, key: _Key, compute: Callable[[], _Value]) -> _Value:
        """Returns the answer of a key; computes it unless it is known."""
        if key not in self:
            self[key] = compute()
        return self[key]

    def clear(self) -> None:
        """Forgets all answers."""
        self._first: dict[_Key, _Value] = {}
        self._latest: dict[_Key, _Value] = {}
        self._room_for_latest = self._max_bytes // _LATEST
        self._room_for_first = self._max_bytes - self._room_for_latest

    def copy(self) -> "BoundedStore[_Key, _Value]":
        """Returns another store with the same answers, which adds and forgets its own from now on."""
        other = BoundedStore[_Key, _Value](self._max_bytes, self._size)
        other._first, other._latest = dict(self._first), dict(self._latest)
        other._room_for_first, other._room_for_latest = self._room_for_first, self._room_for_latest
        return other

    def __getitem__(self, key: _Key) -> _Value:
        return self._first[key] if key in self._first else self._latest[key]

    def __setitem__(self, key: _Key, answer: _Value) -> None:
        self.pop(key, None)
        size = self._size(answer)
        if size <= self._room_for_first:
            self._first[key] = answer
            self._room_for_first -= size
            return
        self._latest[key] = answer
        self._room_for_latest -= size
        while self._room_for_latest < 0 and len(self._latest) > 1:
            del self[next(iter(self._latest))]

    def __delitem__(self, key: _Key) -> None:
        if key in self._first:
            self._room_for_first += self._size(self._first.pop(key))
        else:
            self._room_for_latest += self._size(self._latest.pop(key))

    def __iter__(self) -> Iterator[_Key]:
        yield from self._first
        yield from self._latest

    def __len__(self) -> int:
        return len(self._first) + len(self._latest)

    def __contains__(self, key: object) -> bool:
        return key in self._first or key in self._latest
