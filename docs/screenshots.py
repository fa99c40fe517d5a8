"""Makes the README's pictures of a report: `python docs/screenshots.py`, with Chromium on PATH and Playwright.

The report is of the run of kernels with bugs in reports/findings, where `make findings` leaves it.
"""

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from kerneltest.records.runs import read_all
from kerneltest.report.html.page import write_html

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs/images"


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        address = write_html(Path(folder, "report.html"), read_all([ROOT / "reports/findings"])).as_uri()
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        page = browser.new_page(viewport={"width": 1160, "height": 1100}, color_scheme="light")
        page.goto(f"{address}#/matrix")
        page.wait_for_selector("html[data-ready]")
        page.get_by_role("button", name="Dtypes of row_sums").click()
        page.mouse.move(0, 0)
        shown = page.locator(".legend").bounding_box()
        assert shown is not None
        height = shown["y"] + shown["height"] + 4
        page.screenshot(path=IMAGES / "matrix.png", clip={"x": 0, "y": 0, "width": 1160, "height": height})

        page.click("nav [data-view=suspects]")
        page.set_viewport_size({"width": 1160, "height": 12_000})  # all suspects are in sight, and so laid out
        suspect = page.get_by_role("article", name="NaN from -inf - -inf where a row of x holds nothing but -inf")
        shown, below = suspect.bounding_box(), suspect.get_by_text("Parts of its bound").bounding_box()
        assert shown is not None
        assert below is not None
        clip = {"x": 0, "y": shown["y"], "width": 1160, "height": below["y"] - shown["y"] - 8}
        page.screenshot(path=IMAGES / "finding.png", clip=clip)
        browser.close()
    for image in sorted(IMAGES.glob("*.png")):
        print(f"{image.relative_to(ROOT)}: {image.stat().st_size} bytes")


if __name__ == "__main__":
    main()
