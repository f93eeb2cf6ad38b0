"""Write docs/assets/page.png: the page of suspects, as Chromium shows it.

The graph is the embedded Cora with 1,000 false edges. A browser's letters are not the
same on every machine, so that this is run by hand and checked by nobody:

    python scripts/page_picture.py
"""

import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

import gsebo

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "assets" / "page.png"
SIZE = {"width": 1280, "height": 1180}
FIRST = 500


def main() -> None:
    """Fit, open the page, take its picture."""
    programs = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    if (program := next(filter(None, programs), None)) is None:
        sys.exit("no Chromium is on the PATH")
    graph = gsebo.add_inter_class_edges(gsebo.load_data("cora"), 1000, seed=0)
    found = gsebo.SuspiciousEdges(random_state=0).fit(graph)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder) / "suspects.html"
        gsebo.write_page(found, page_file, graph="Cora with 1,000 false edges")
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"]
        )
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(page_file.as_uri())
        page.wait_for_selector("html.ready")
        page.locator("#first").fill(str(FIRST))
        page.locator(".row").first.click()
        page.wait_for_timeout(2000)
        shot = Path(folder) / "page.png"
        page.screenshot(path=shot)
        browser.close()
        # Few colours are enough, and take a third of the room.
        Image.open(shot).convert("RGB").quantize(96).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
