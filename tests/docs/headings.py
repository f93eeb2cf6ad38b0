"""The anchors of a page, as its headings give them."""

import re
from functools import cache
from pathlib import Path

from pymdownx.slugs import slugify

DOCS = Path(__file__).resolve().parents[2] / "docs"
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^ {0,3}(```+|~~~+).*?^ {0,3}\1", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} +(.+?)(?: +#+)?$", re.MULTILINE)
# The rule of the site, which is that of most places that show repositories.
_slug = slugify(case="lower")


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors that a page has, on the site as well as in a repository.

    Of equal headings only the first has the same anchor in both.
    """
    headings = _HEADING.findall(_FENCE.sub("", path.read_text("utf-8")))
    return frozenset(
        _slug(LINK.sub(r"\1", heading).replace("`", ""), "-") for heading in headings
    )
