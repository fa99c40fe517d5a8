"""Backends that wrap another one forward every member of `Backend`, or override it on purpose."""

import inspect
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

import kerneltest as kt
from kerneltest.backends.base import Artifact, Backend, DelegatingBackend, UnavailableBackend
from kerneltest.backends.device import RemoteBackend
from kerneltest.backends.registry import resolve
from kerneltest.backends.user_backend import UserBackend
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict

MEMBERS = sorted({name for name in (*vars(Backend), *inspect.get_annotations(Backend)) if not name.startswith("_")})

# Members that a wrapper answers by itself, and why.
OVERRIDDEN: dict[type[DelegatingBackend], dict[str, str]] = {
    DelegatingBackend: {},
    UserBackend: {},
    RemoteBackend: {
        "unavailable": "the other machine says whether it can serve the backend",
        "environment": "the other machine's device is recorded",
        "prepare": "nothing runs on this machine",
        "fast_path": "nothing runs on this machine",
        Backend.prepare_at_scale.__name__: "nothing runs on this machine",
    },
}

MAKE: dict[type[DelegatingBackend], Callable[[Backend], Backend]] = {
    DelegatingBackend: DelegatingBackend,
    UserBackend: lambda wrapped: UserBackend(wrapped, wrapped.id),
    RemoteBackend: lambda wrapped: RemoteBackend(wrapped, "elsewhere", {"device": "another"}),
}


def _recording(calls: list[str]) -> Backend:
    """Returns a backend that notes each method called, and whose attributes differ from the defaults of `Backend`."""

    def method(name: str) -> Any:
        def call(self: Backend, *arguments: Any) -> Any:
            calls.append(name)
            return Artifact(1) if name == "prepare" else self

        return call

    members: dict[str, Any] = {"id": "recording", "tier": kt.Tier.LOWER}
    for name in MEMBERS:
        member = getattr(Backend, name, None)
        if isinstance(member, property):
            members[name] = property(lambda self: "another platform")
        elif callable(member):
            members[name] = method(name)
        else:
            members.setdefault(name, not member)
    made: Backend = type("Recording", (Backend,), members)()
    return made


@pytest.mark.parametrize("wrapper", MAKE, ids=lambda wrapper: wrapper.__name__)
@pytest.mark.parametrize("name", MEMBERS)
def test_every_member_is_forwarded_or_overridden_on_purpose(name: str, wrapper: type[DelegatingBackend]) -> None:
    calls: list[str] = []
    wrapped = _recording(calls)
    made, member = MAKE[wrapper](wrapped), getattr(Backend, name, None)
    if callable(member):
        traced = SimpleNamespace(outputs=())
        with suppress(kt.Failure):
            getattr(made, name)(*[traced] * (len(inspect.signature(member).parameters) - 1))
        forwarded = name in calls
    else:
        forwarded = getattr(made, name) == getattr(wrapped, name)
    assert forwarded is (name not in OVERRIDDEN[wrapper])


@pytest.mark.parametrize(
    "make",
    [*MAKE.values(), lambda wrapped: UnavailableBackend(wrapped, Failure(Verdict.UNAVAILABLE, "no licence"))],
    ids=lambda make: make.__name__,
)
def test_a_wrapper_stays_in_place_for_other_orders_of_programs(make: Callable[[Backend], Any]) -> None:
    (simulate,) = resolve(["simulate:sm_90"])
    made = make(simulate)
    other = made.with_program_orders(2)
    assert (type(other), other.id, other.unavailable()) == (type(made), made.id, made.unavailable())
    assert (made.wrapped.orders, other.wrapped.orders) == (0, 2)


def test_overridden_members_exist() -> None:
    assert all(set(members) <= set(MEMBERS) for members in OVERRIDDEN.values())
