"""Answers of compilers, kept on disk between runs by the content of the question."""

import gzip
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_folder: Path | None = None


def keep_answers(folder: Path) -> None:
    """Keeps the compilers' answers in `folder` between runs."""
    global _folder
    _folder = folder
    folder.mkdir(parents=True, exist_ok=True)


def answered(
    request: Mapping[str, Any], versions: Mapping[str, str], told: frozenset[str], ask: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """The answer to a request that is plain JSON: the one kept for it and these versions, or what `ask` returns.

    An answer has all of the keys `told`, or a verdict and a message.
    """
    path = _path(request, versions)
    known = _recalled(path, told)
    if known is not None:
        return known
    answer = ask()
    if path is not None:
        temporary = path.with_suffix(f".{os.getpid()}.{id(answer)}")
        temporary.write_bytes(gzip.compress(json.dumps(answer).encode()))
        temporary.replace(path)
    return answer


def _recalled(path: Path | None, told: frozenset[str]) -> dict[str, Any] | None:
    if path is None or not path.exists():
        return None
    try:
        answer = json.loads(gzip.decompress(path.read_bytes()))
        if not (told <= answer.keys() or {"verdict", "message"} <= answer.keys()):
            raise ValueError("it is not an answer of a compiler")
    except (OSError, ValueError, AttributeError, EOFError) as error:
        warnings.warn(f"{path} cannot be read ({error}): compiling again", stacklevel=2)
        return None
    return dict(answer)


def _path(request: Mapping[str, Any], versions: Mapping[str, str]) -> Path | None:
    if _folder is None:
        return None
    content = json.dumps({**request, **versions}, sort_keys=True)
    return _folder / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.json.gz"
