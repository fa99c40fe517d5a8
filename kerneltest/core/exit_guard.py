"""`os._exit` in tested code: it must not end a process as a success before kerneltest has decided that it is one.

Code under test may call it anywhere: while its module is imported, while a kernel is traced, in a case, or in an exit
handler. While any rule applies, `os._exit` asks the rules, the innermost first, for the status with which to exit.
Processes that were forked from this one are left alone.
"""

import atexit
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

Rule = Callable[[int], int]
"""Returns the status with which to exit in place of a given one; it may raise instead."""

_rules: list[Rule] = []
_process = os.getpid()
_exit = os._exit


def leave(status: int) -> NoReturn:
    """Ends this process at once, whatever rules apply."""
    _exit(status)


def add_rule(rule: Rule) -> None:
    """Applies a rule until it is removed."""
    global _process
    if _process != os.getpid():
        _process = os.getpid()
        _rules.clear()  # those of the process that this one was forked from
    _rules.append(rule)
    os._exit = _ask_rules


def remove_rule(rule: Rule) -> None:
    """Removes a rule."""
    _rules.remove(rule)
    if not _rules and os._exit is _ask_rules:
        os._exit = _exit


def _ask_rules(status: int) -> NoReturn:
    for rule in reversed(_rules) if os.getpid() == _process else ():
        status = rule(status)
    leave(status)


@contextmanager
def refuse_exit() -> Iterator[None]:
    """Makes `os._exit` raise. A kernel that calls it while it is traced for the plan then fails when its case runs."""

    def refuse(status: int) -> NoReturn:
        raise RuntimeError(f"os._exit({status}) was called")

    add_rule(refuse)
    try:
        yield
    finally:
        remove_rule(refuse)


class ExitGuard:
    """Keeps a process from ending with status 0 before its session or command ends, or by an exit handler after it."""

    def __init__(self, subject: str) -> None:
        """Installs the guard. Call it before pytest captures standard error.

        Args:
          subject: what must end first, in words.
        """
        self._subject, self._console, self._status, self._is_over = subject, os.dup(2), 1, False
        add_rule(self._fail)

    def end(self, status: int) -> None:
        """Lets `os._exit` end the process again, until the exit handlers run; `status` is the process's own."""
        os.close(self._console)
        self._console, self._status, self._is_over = 2, status, True
        remove_rule(self._fail)
        if status:
            atexit.register(add_rule, self._fail)  # it runs before the handlers registered so far

    def _fail(self, status: int) -> int:
        if status:
            return status
        # The caller is below this rule and the function that asks it.
        caller = traceback.extract_stack(limit=3)[0]
        when = f"after {self._subject} failed" if self._is_over else f"before {self._subject} ended"
        place = f"{caller.filename}:{caller.lineno}"
        text = f"\nkerneltest: os._exit(0) was called {when} ({place}); exit status {self._status}\n"
        with suppress(OSError):  # a closed console; the status says enough
            os.write(self._console, text.encode("utf-8", "backslashreplace"))
        return self._status
