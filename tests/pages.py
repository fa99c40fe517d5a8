"""A report as text, for tests: its tags, attributes, words and data."""

import base64
import json
import re
import zlib
from html.parser import HTMLParser
from typing import Any


class Page(HTMLParser):
    """Tags, attributes and visible text of a page, and its data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.source = text
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)
        self.words = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += "" if self.tags[-1:] in (["script"], ["style"]) else data

    @property
    def data(self) -> dict[str, Any]:
        (packed,) = re.findall(r'<script type="application/octet-stream" id="data">([^<]*)</script>', self.source)
        decoded: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
        return decoded
