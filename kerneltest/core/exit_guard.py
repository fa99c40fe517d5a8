"""The ways to end this process at once: in tested code, they must not end it as a success before kerneltest does.

Code under test may call `os._exit`, or have `os.execv` put another program in the place of this one, anywhere: while
its module is imported, while a kernel is traced, in a case, or in an exit handler. While any rule applies, these
functions ask the rules, the innermost first, for the status with which to exit. Processes that were forked from this
one are left alone. Code in another language may end the process unseen.
"""

import atexit
import functools
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

Rule = Callable[[int, str], int]
"""Returns the status with which to exit in place of a given one, after a call in words; it may raise instead."""

_rules: list[Rule] = []
_process = os.getpid()
_FUNCTIONS = {name: getattr(os, name) for name in ("_exit", "execv", "execve")}  # other `exec` functions call these
_MODULES = (os, sys.modules[os.name])  # which also holds them, as `posix`


def leave(status: int) -> NoReturn:
    """Ends this process at once, whatever rules apply."""
    _FUNCTIONS["_exit"](status)
    raise AssertionError  # it does not return


def add_rule(rule: Rule) -> None:
    """Applies a rule until it is removed."""
    global _process
    if _process != os.getpid():
        _process = os.getpid()
        _rules.clear()  # those of the process that this one was forked from
    _rules.append(rule)
    for module in _MODULES:
        vars(module).update(_ASKING)


def remove_rule(rule: Rule) -> None:
    """Removes a rule."""
    _rules.remove(rule)
    for module in _MODULES if not _rules else ():
        vars(module).update({name: _FUNCTIONS[name] for name, ask in _ASKING.items() if vars(module)[name] is ask})


def _ask_rules(name: str) -> Callable[..., Any]:
    @functools.wraps(_FUNCTIONS[name])
    def ask(*arguments: Any, **named: Any) -> Any:
        if os.getpid() != _process or not (arguments or named):
            return _FUNCTIONS[name](*arguments, **named)
        status = int([*arguments, *named.values()][0]) if name == "_exit" else 0
        call = f"os._exit({status})" if name == "_exit" else f"os.{name}"
        for rule in reversed(_rules):
            status = rule(status, call)
        leave(status)

    return ask


_ASKING = {name: _ask_rules(name) for name in _FUNCTIONS}


@contextmanager
def refuse_exit() -> Iterator[None]:
    """Makes `os._exit` raise. A kernel that calls it while it is traced for the plan then fails when its case runs."""

    def refuse(status: int, call: str) -> NoReturn:
        raise RuntimeError(f"{call} was called")

    add_rule(refuse)
    try:
        yield
    finally:
        remove_rule(refuse)


class ExitGuard:
    """Keeps a process from ending with status 0 before its session or command ends, or by an exit handler after it."""

    def __init__(self, subject: str) -> None:
        """Installs the guard, before pytest captures standard error; `subject` must end first, in words."""
        self._subject, self._console, self._status, self._is_over = subject, os.dup(2), 1, False
        add_rule(self._fail)

    def end(self, status: int) -> None:
        """Lets `os._exit` end the process again, until the exit handlers run; `status` is the process's own."""
        os.close(self._console)
        self._console, self._status, self._is_over = 2, status, True
        remove_rule(self._fail)
        if status:
            atexit.register(add_rule, self._fail)  # it runs before the handlers registered so far

    def _fail(self, status: int, call: str) -> int:
        if status:
            return status
        # The caller is below this rule, the function that asks it, and those of `os` that call that.
        caller = next(frame for frame in traceback.extract_stack()[-3::-1] if frame.filename != os.__file__)
        when = f"after {self._subject} failed" if self._is_over else f"before {self._subject} ended"
        self.say(f"{call} was called {when} ({caller.filename}:{caller.lineno})", self._status)
        return self._status

    def say(self, what: str, status: int) -> None:
        """Writes to the console what would have ended the process with status 0, and its own status."""
        text = f"\nkerneltest: {what}; exit status {status}\n"
        with suppress(OSError):  # a closed console; the status says enough
            os.write(self._console, text.encode("utf-8", "backslashreplace"))
