"""Rules of the house that no linter knows: `python tools/check_style.py`, as part of `make lint`.

- A module has at most 800 lines: it is one concept, with what is read together in it.
- A docstring does not open with a question word: it begins with a verb or with the noun that is returned.
- Nothing parses a message of kerneltest's own: neither by a regular expression nor by methods of strings.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "kerneltest"
MAX_LINES = 800
OPENERS = re.compile(r"(What|Which|Where|Whether|How|Of which|Of what)\b")
PARSERS = {"search", "match", "fullmatch", "findall", "finditer", "sub", "subn", "split"}
STRING_TESTS = {"startswith", "endswith", "removeprefix", "removesuffix", "find", "index", "count"}


def problems() -> Iterator[str]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        text = path.read_text(encoding="utf-8")
        if (lines := text.count("\n")) > MAX_LINES:
            yield f"{name}: {lines} lines, more than {MAX_LINES}"
        tree = ast.parse(text)
        for line, problem in [*_openers(tree), *_parsed_messages(tree)]:
            yield f"{name}:{line}: {problem}"


def _openers(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node) or ""
            if OPENERS.match(docstring):
                yield getattr(node, "lineno", 1), f'the docstring opens with "{docstring.split()[0]}"'


def _parsed_messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in PARSERS and any(map(_is_message, node.args)):
                yield node.lineno, "a message is parsed by a regular expression: read the record's detail"
            if node.func.attr in STRING_TESTS and _is_message(node.func.value):
                yield node.lineno, "a message is parsed: read the record's detail"
        searches = isinstance(node, ast.Compare) and any(isinstance(op, ast.In | ast.NotIn) for op in node.ops)
        if searches and any(map(_is_message, node.comparators)):
            yield node.lineno, "a message is searched: read the record's detail"


def _is_message(node: ast.expr) -> bool:
    """Returns whether an expression is a record's or a failure's message, or a part of one."""
    match node:
        case ast.Attribute(value, "message"):
            return not (isinstance(value, ast.Name) and value.id in ("messages", "catalogue"))
        case ast.Call(ast.Attribute(_, "text"), []):
            return True
        case ast.Call(ast.Name("str"), [ast.Name("failure")]):
            return True
        case ast.Subscript(value=inner) | ast.Call(ast.Attribute(value=inner)):
            return _is_message(inner)
    return False


if __name__ == "__main__":
    found = list(problems())
    print("\n".join(found) or "style: no problem")
    sys.exit(bool(found))
