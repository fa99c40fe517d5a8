"""Pages of reports in a real browser."""

import importlib.util
import shutil
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
NEEDED = "needs Playwright, axe and a browser: pip install 'kerneltest[browser]'; apt-get install chromium"
needs_browser = pytest.mark.skipif(CHROMIUM is None or importlib.util.find_spec("playwright") is None, reason=NEEDED)


def open_page(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
