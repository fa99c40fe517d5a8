"""The Jinja environment of all reports: undefined names raise, and all values are escaped."""

import base64
import hashlib
from importlib.resources import files

import jinja2


def csp_digest(text: str) -> str:
    """Returns the SHA-256 digest by which a content security policy allows an inline script or style."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader("kerneltest.report"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)
_ENVIRONMENT.filters["csp_digest"] = csp_digest


def render(template: str, **values: object) -> str:
    """Renders a file of `templates/`.

    Args:
      template: the name of the file.
      **values: the template's variables.
    """
    return _ENVIRONMENT.get_template(template).render(values)


def render_text(template: str, **values: object) -> str:
    """Renders the text of a template, such as one of an extension."""
    return _ENVIRONMENT.from_string(template).render(values)


def static(name: str) -> str:
    """Reads a script or style of `html/static/`, which a template includes without escaping."""
    return (files("kerneltest.report.html") / "static" / name).read_text(encoding="utf-8")
