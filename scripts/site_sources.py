"""Pages of the site for what its pages show or link to outside of docs/.

In the repository such a link leads to the file. The site has no repository beside it
and may be read without a network, so each of those files becomes a page of its own:
Markdown as it is, all else as a listing. A page that says ``{{ FILE }}`` and nothing
else is that file.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parent.parent
SHOWN = re.compile(r"\{\{ ([\w./]+) \}\}\s*")
LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=#|\))")
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Give every link to a file of the repository a page to lead to."""
    waiting = list(files.documentation_pages())
    # Files of the repository, and the pages that they are.
    pages = {f"docs/{page.src_uri}": page.src_uri for page in waiting}
    # Where the links of a page start from: the file that they were written in.
    written_in = {uri: path for path, uri in pages.items()}
    for notebook in [one for one in files if one.src_uri.endswith(".ipynb")]:
        uri = f"{notebook.src_uri.removesuffix('.ipynb')}.md"
        pages[f"docs/{notebook.src_uri}"] = uri
    for page in waiting:
        if found := SHOWN.fullmatch(page.content_string):
            page.content_string = (ROOT / found[1]).read_text("utf-8")
            pages[found[1]] = page.src_uri
            written_in[page.src_uri] = found[1]
    while waiting:
        page = waiting.pop()
        here = posixpath.dirname(written_in[page.src_uri])

        def led(found: re.Match[str], page: File = page, here: str = here) -> str:
            path = posixpath.normpath(posixpath.join(here, found[1]))
            if path not in pages and not path.startswith("docs/"):
                if not (ROOT / path).is_file():
                    return found[1]
                added = _page_of(path, config)
                pages[path] = added.src_uri
                written_in[added.src_uri] = path
                files.append(added)
                waiting.append(added)
            uri = pages.get(path, path.removeprefix("docs/"))
            return posixpath.relpath(uri, posixpath.dirname(page.src_uri) or ".")

        text = page.content_string
        if (linked := LINK.sub(led, text)) != text:
            page.content_string = linked
    return files


def _page_of(path: str, config: MkDocsConfig) -> File:
    """A page that no list names, for it is not one of the documentation's own."""
    text = (ROOT / path).read_text("utf-8")
    if not path.endswith(".md"):
        language = LANGUAGES.get(posixpath.splitext(path)[1], "text")
        text = f"# {path}\n\n````{language}\n{text}````\n"
    uri = f"source/{path.removesuffix('.md')}.md"
    return File.generated(
        config, uri, content=text, inclusion=InclusionLevel.NOT_IN_NAV
    )
