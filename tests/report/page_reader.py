"""Reads a page the way a test wants to know it."""

from html.parser import HTMLParser


class PageReader(HTMLParser):
    """Collects elements, names, links and the text of a page.

    Attributes:
        elements: Tag and attributes of each element.
        text: All text outside of scripts and styles, blanks joined.
        inside: The text of each style sheet and script.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.inside: dict[str, list[str]] = {"style": [], "script": []}
        self._open = ""
        self._words: list[str] = []
        self.feed(html)
        self.text = " ".join(" ".join(self._words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self._open = tag

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open in self.inside:
            self.inside[self._open].append(data)
        else:
            self._words.append(data)

    def values(self, attribute: str) -> list[str]:
        """Of one attribute, of all elements that have it."""
        return [own[attribute] for _, own in self.elements if attribute in own]
