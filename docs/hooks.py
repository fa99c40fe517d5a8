"""Hooks of the site's build: pages that read well on GitHub become pages of the site.

README, CONTRIBUTING, CHANGELOG and SECURITY come from the top folder. A link to another page stays inside the site, and
one to another file of the repository leads to GitHub. A link that leads nowhere, or a page that loads something from
another host, is a warning, and `mkdocs build --strict` fails on it. Mermaid diagrams become SVG here.
"""

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
REPOSITORY = "https://github.com/kerneltest/kerneltest"
TOP_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}

_LINK = re.compile(r"(?<=\]\()[^)\s]+(?=\))")
_TAG = re.compile(r"<(?:img|script|iframe|source|link)\b[^>]*>")
_ELSEWHERE = re.compile(r'\b(?:src|href)="(?:https?:)?//[^"]*"')
_LOG = logging.getLogger("mkdocs.hooks.kerneltest")


def site_link(source: str, link: str) -> str:
    """A link as the site has it.

    Args:
      source: the page's path in the repository.
      link: as the page has it.

    Raises:
      FileNotFoundError: it leads to no file of the repository.
    """
    if link.startswith("#") or re.match(r"\w+:", link):
        return link
    path, mark, anchor = link.partition("#")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if not (ROOT / target).exists():
        raise FileNotFoundError(target)
    page = TOP_PAGES.get(target, target.removeprefix("docs/"))
    if target in TOP_PAGES or (target.startswith("docs/") and page.endswith((".md", ".png", ".svg", ".json"))):
        here = posixpath.dirname(TOP_PAGES.get(source, source.removeprefix("docs/")))
        return posixpath.relpath(page, here or ".") + mark + anchor
    view = "tree" if (ROOT / target).is_dir() else "blob"
    return f"{REPOSITORY}/{view}/main/{target}{mark}{anchor}"


def on_config(config: Any) -> None:
    """Has Mermaid's fences drawn; in place of the setting, which cannot name a function of a hook."""
    fence = {"name": "mermaid", "class": "mermaid", "format": _diagram}
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fence]}


def _diagram(source: str, *_: Any, **__: Any) -> str:
    from mermaidx import render

    return f'<div style="background: white; padding: 1em">{render(source, theme="neutral").svg()}</div>'


def on_files(files: Any, config: Any) -> None:
    """Adds the pages of the top folder."""
    from mkdocs.structure.files import File

    for source, page in TOP_PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Makes the links of a page those of the site."""
    generated = {page: source for source, page in TOP_PAGES.items()}
    source = generated.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def replaced(link: re.Match[str]) -> str:
        try:
            return site_link(source, link[0])
        except FileNotFoundError as error:
            _LOG.warning("%s links to %s, and there is no %s", source, link[0], error)
            return link[0]

    return _LINK.sub(replaced, markdown)


def on_post_page(output: str, page: Any, config: Any) -> None:
    """Warns of what a page would load from another host."""
    for tag in _TAG.findall(output):
        elsewhere = _ELSEWHERE.search(tag)
        if elsewhere and config.site_url not in elsewhere[0]:
            _LOG.warning("%s loads from another host: %s", page.file.src_uri, tag)
