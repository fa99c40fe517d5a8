"""Sections of the page that extensions and users add. Imports no other module of the page, for the command line."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from kerneltest.core.extension_registry import AFTER_BUILT_IN, Registry


class PanelError(ValueError):
    """A section that cannot be made; says why."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of one page.

    Attributes:
      name: in its address, `#/NAME`.
      title: in the page's navigation.
      html: a `<section>` with `id="view-NAME"` and `data-view="NAME"`. It is not escaped.
    """

    name: str
    title: str
    html: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A kind of section.

    Attributes:
      name: of its sections.
      add_arguments: adds its options to `kerneltest report`.
      section: makes the section for some options; None if they ask for none. Raises a PanelError if it cannot.
    """

    name: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    section: Callable[[argparse.Namespace], Section | None]


_REGISTRY: Registry[Panel] = Registry("panel", extended_by="panels")


def register_panel(panel: Panel, *, order: int = AFTER_BUILT_IN) -> None:
    """Registers a panel.

    Args:
      panel: with a name that no other panel has.
      order: its position after the page's own sections.

    Raises:
      ValueError: the name is taken.
    """
    _REGISTRY.add(panel, panel.section.__module__, order)


def registered_panels() -> tuple[Panel, ...]:
    """All panels, in order."""
    return _REGISTRY.entries()
