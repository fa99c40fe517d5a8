"""A store of answers that forgets the oldest ones once they take too much memory."""

from collections.abc import Callable
from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class BoundedStore(Generic[_Key, _Value]):
    """Answers by key, up to a number of bytes; the latest one is kept whatever its size."""

    def __init__(self, max_bytes: int, size: Callable[[_Value], int]) -> None:
        """Initialises the instance.

        Args:
          max_bytes: that the answers may take.
          size: returns the bytes of an answer.
        """
        self._max_bytes, self._size = max_bytes, size
        self._answers: dict[_Key, _Value] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._answers)

    def compute_once(self, key: _Key, compute: Callable[[], _Value]) -> _Value:
        """Returns the answer of a key; computes it unless it is known."""
        if key not in self._answers:
            self._answers[key] = answer = compute()
            self._bytes += self._size(answer)
            while self._bytes > self._max_bytes and len(self._answers) > 1:
                self._bytes -= self._size(self._answers.pop(next(iter(self._answers))))
        return self._answers[key]

    def clear(self) -> None:
        """Forgets all answers."""
        self._answers.clear()
        self._bytes = 0
