"""The one Jinja environment of all reports: what is missing raises, what comes from records is escaped."""

import base64
import hashlib
from importlib.resources import files
from typing import Any

import jinja2


def csp_digest(text: str) -> str:
    """The SHA-256 by which a content-security policy allows one inline script or style."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader("kerneltest.report"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)
_ENVIRONMENT.filters["csp_digest"] = csp_digest


def render(template: str, **values: Any) -> str:
    """A file of `templates/`, filled in."""
    return _ENVIRONMENT.get_template(template).render(values)


def render_text(template: str, **values: Any) -> str:
    """The text of a template, filled in."""
    return _ENVIRONMENT.from_string(template).render(values)


def static(name: str) -> str:
    """The text of a file of `html/static/`: our own scripts and styles, which a template includes as they are."""
    return (files("kerneltest.report.html") / "static" / name).read_text(encoding="utf-8")
