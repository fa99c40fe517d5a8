"""The registry of report sections that extensions and users add.

The command line imports it for its options, so it imports no other module of the page.
"""

import argparse
import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

import jinja2
from markupsafe import Markup

from kerneltest.core.extension_registry import Registry
from kerneltest.core.failures import UnusableInputError
from kerneltest.core.media import printable

if TYPE_CHECKING:
    from kerneltest.records.runs import Overlay


class PanelError(UnusableInputError):
    """A section cannot be made. The message says why."""


@dataclass(frozen=True, slots=True)
class MatrixColumn:
    """A column of the matrix after those of the backends."""

    title: str  # its head
    meaning: str  # a phrase that explains its values
    cells: Mapping[tuple[str, str], str]  # its texts by pairing and dtype; the dtype is "" for the whole pairing


@dataclass(frozen=True, slots=True)
class LineNote:
    """A note beside a line of a kernel's source."""

    pairing: str  # the kernel's
    place: str  # FILE:LINE
    text: str  # the note
    good: bool  # whether it needs no attention


@dataclass(frozen=True, slots=True)
class Section:
    """A section of one page."""

    name: str  # the view's name in the page's address, `#/NAME`
    title: str  # the text of its link in the page's navigation
    html: str  # a `<section>` with `id="view-NAME"` and `data-view="NAME"`; it is inserted without escaping
    columns: tuple[MatrixColumn, ...] = ()  # of the matrix
    notes: tuple[LineNote, ...] = ()  # beside the sources of kernels


@dataclass(frozen=True, slots=True)
class Panel:
    """A kind of section."""

    name: str  # the name of its sections
    add_arguments: Callable[[argparse.ArgumentParser], None]  # adds its options to `kerneltest report`
    # makes the section of a page from the parsed options and the runs that the page shows. It returns None if there is
    # nothing to show, and raises a `PanelError` if the section cannot be made
    section: "Callable[[argparse.Namespace, Overlay], Section | None]"


PANELS: Registry[Panel] = Registry("panel", extended_by="panels")


def register_panel(panel: Panel) -> None:
    """Registers a panel after those that there are; raises a ValueError if its name is taken."""
    PANELS.add(panel, panel.section.__module__)


def make_sections(merged: "Overlay", chosen: argparse.Namespace | None = None) -> list[Section]:
    """Returns the sections of a page by the options of `kerneltest report`, if given; raises a PanelError."""
    if chosen is None:
        parser = argparse.ArgumentParser()
        for panel in PANELS.entries():
            panel.add_arguments(parser)
        chosen = parser.parse_args([])
    return [section for panel in PANELS.entries() if (section := panel.section(chosen, merged))]


def _csp_digest(text: str) -> str:
    # By which a content security policy allows an inline script or style.
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


_LAYOUT = "\n\t\N{NO-BREAK SPACE}\N{THIN SPACE}"


def _for_page(value: object) -> object:
    # Text of kernels and records; that of the page itself is marked as safe.
    return printable(value, kept=_LAYOUT) if isinstance(value, str) and not isinstance(value, Markup) else value


# The Jinja environment of all reports: undefined names raise, and all values are escaped.
_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader("kerneltest.report"),
    autoescape=True,
    finalize=_for_page,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)
_ENVIRONMENT.filters["csp_digest"] = _csp_digest
_ENVIRONMENT.filters["exact"] = json.dumps  # in ASCII, which is printable: a script reads what the page must not show


def render(template: str, **values: object) -> str:
    """Renders a file of `templates/`."""
    return _ENVIRONMENT.get_template(template).render(values)


def render_text(template: str, **values: object) -> str:
    """Renders the text of a template, such as one of an extension."""
    return _ENVIRONMENT.from_string(template).render(values)


def static(name: str) -> str:
    """Reads a script or style of `html/static/`, which a template includes without escaping."""
    return (files("kerneltest.report.html") / "static" / name).read_text(encoding="utf-8")
