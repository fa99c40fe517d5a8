"""What `import kerneltest as kt` offers: everything is listed and documented, and nothing is loaded before its use."""

import inspect
import pydoc
import re
from typing import Any

import pytest

import kerneltest as kt

PUBLIC = {name: getattr(kt, name) for name in kt.__all__}
FUNCTIONS = {name: each for name, each in PUBLIC.items() if inspect.isfunction(each)}
MODELS = {f"tolerance.{name}": each for name, each in vars(kt.tolerance).items() if inspect.isfunction(each)}
CLASSES = {name: each for name, each in PUBLIC.items() if inspect.isclass(each)}


def test_dir_lists_the_api() -> None:
    assert dir(kt) == kt.__all__
    assert {"oracle_for", "array", "check", "tolerance"} <= set(kt.__all__)


def _described(text: str) -> set[str]:
    """The names that the section "Args:" of a docstring describes."""
    section = re.search(r"^ *Args:\n(.+?)(?=\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    lines = re.findall(r"^ +(\w[\w, ]*): ", section[1], re.MULTILINE) if section else []
    return {name.strip() for line in lines for name in line.split(",")}


@pytest.mark.parametrize("name", [*FUNCTIONS, *MODELS])
def test_a_function_describes_its_arguments(name: str) -> None:
    function = {**FUNCTIONS, **MODELS}[name]
    text = inspect.getdoc(function) or ""
    assert _described(text) == set(inspect.signature(function).parameters)


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_describes_itself_and_its_fields(name: str) -> None:
    made = CLASSES[name]
    text = inspect.getdoc(made) or ""
    fields = getattr(made, "__dataclass_fields__", {})
    section = text.partition("Attributes:")[2]
    assert text
    assert [field for field in fields if not re.search(rf"\b{field}\b", section)] == []
    methods = {key: each for key, each in vars(made).items() if inspect.isfunction(each) and not key.startswith("_")}
    assert [key for key, each in methods.items() if not inspect.getdoc(each)] == []


@pytest.mark.parametrize("name", ["oracle_for", "array", "check"])
def test_help_shows_the_docstring(name: str) -> None:
    shown = pydoc.render_doc(PUBLIC[name], renderer=pydoc.plaintext)
    assert f"{name}(" in shown
    assert "Args:" in shown


def test_what_is_not_there_is_an_attribute_error() -> None:
    missing: Any = "choice"
    with pytest.raises(AttributeError, match="module 'kerneltest' has no attribute 'choice'"):
        getattr(kt, missing)
