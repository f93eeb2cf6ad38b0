"""One page in the browser, with all that it asked for and complained of."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

OpenPage = Callable[..., "Tab"]

_VISIBLE = """
(selector) => [...document.querySelectorAll(selector)]
  .filter((element) => element.checkVisibility())
  // What the line before gets wrong for parts of drawings.
  .filter((element) => getComputedStyle(element).display !== "none")
  .map((element) => ({...element.dataset, text: element.textContent.trim()}))
"""
_SIZES = """
(selector) => [...document.querySelectorAll(selector)].map((element) => {
  const box = element.getBoundingClientRect();
  return [box.width, box.height];
})
"""


class Tab:
    """A file, opened.

    Attributes:
        page: The driver's own handle.
        requests: Addresses of everything that was asked for.
        complaints: Errors and warnings of the console, and of scripts.
    """

    def __init__(
        self,
        browser: Any,
        path: Path,
        *,
        place: str = "",
        width: int = 1280,
        **more: Any,
    ) -> None:
        size = {"width": width, "height": 900}
        self.page = browser.new_context(viewport=size, **more).new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda one: self.requests.append(one.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._hear)
        self.page.goto(f"{path.as_uri()}{place}")

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def run(self, script: str, *arguments: Any) -> Any:
        """Evaluate JavaScript in the page."""
        return self.page.evaluate(script, *arguments)

    def visible(self, selector: str) -> list[dict[str, str]]:
        """Tags and text of the elements that can be seen."""
        found: list[dict[str, str]] = self.run(_VISIBLE, selector)
        return found

    def sizes(self, selector: str) -> list[tuple[float, float]]:
        """Width and height of elements, in pixels."""
        return [tuple(size) for size in self.run(_SIZES, selector)]

    def style(self, selector: str, name: str) -> str:
        """A property of the first element, as it came out."""
        script = "([one, name]) => getComputedStyle(document.querySelector(one))[name]"
        return str(self.run(script, [selector, name]))

    def unfold(self) -> None:
        """Open everything that can be opened."""
        self.run(
            "for (const one of document.querySelectorAll('details')) one.open = true"
        )

    def fits(self) -> bool:
        """Whether nothing sticks out to the right."""
        script = "document.documentElement.scrollWidth <= innerWidth"
        return bool(self.run(script))

    def choose(self, kind: str, *names: str) -> None:
        """Tick boxes of the filter."""
        self.run("document.querySelector('#filter details').open = true")
        for name in names:
            box = self.page.locator(f"input[name={kind}][value={name}]")
            box.check(force=True)
