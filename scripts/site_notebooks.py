"""Pages of the site for the notebooks of docs/: what they say, and what they printed.

A notebook becomes Markdown before anything else is done, so that its links are checked
and its words are found as those of any page. Nothing is run here. What it draws becomes
two pictures, for the light and the dark site.
"""

import re
from pathlib import PurePosixPath

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbformat import NotebookNode

# What is white to matplotlib is no paper here. For dark pages ink is light, and so are
# the colours that the notebooks use.
DARK = {
    "#000000": "#e2e4e9",
    "#ffffff": "none",
    "#0072b2": "#4aa8e0",
    "#d55e00": "#f5843c",
    "#e69f00": "#e9b13c",
    "#009e73": "#3cc49c",
}
LIGHT = {"#ffffff": "none"}
# What is a notebook to a notebook is a page to a page.
OTHER = re.compile(r"(?<=\]\()(\w+)\.ipynb(?=\))")
# What pandas does to tables, which are to look as all others do.
DRESS = re.compile(r'<style scoped>.*?</style>\s*| border="1" class="dataframe"', re.S)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put a page and its pictures where there is a notebook."""
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        place = PurePosixPath(notebook.src_uri)
        node = nbformat.reads(notebook.content_string, 4)
        text, pictures = page(node, place.stem)
        for name, drawn in pictures.items():
            uri = f"{place.parent}/{name}"
            files.append(File.generated(config, uri, content=drawn))
        uri = str(place.with_suffix(".md"))
        files.append(File.generated(config, uri, content=text))
    return files


def page(notebook: NotebookNode, stem: str) -> tuple[str, dict[str, str]]:
    """A notebook as Markdown, and the pictures that it links to, by their names."""
    parts: list[str] = []
    pictures: dict[str, str] = {}
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(OTHER.sub(r"\1.md", cell.source))
            continue
        # A setting of notebooks is no Python for the reader to copy.
        code = "\n".join(x for x in cell.source.split("\n") if not x.startswith("%"))
        parts.append(f"```python\n{code}\n```")
        for output in cell.outputs:
            if output.output_type == "stream":
                parts.append(f"```text\n{output.text.rstrip()}\n```")
                continue
            if drawing := output.data.get("image/svg+xml"):
                name, words = f"{stem}-{len(pictures) // 2 + 1}", cell.metadata.picture
                for scheme, colours in (("light", LIGHT), ("dark", DARK)):
                    file = f"{name}-{scheme}.svg"
                    pictures[file] = _coloured(drawing, colours)
                    parts.append(f"![{words}]({file}#only-{scheme})")
            elif table := output.data.get("text/html"):
                parts.append(DRESS.sub("", table))
            else:
                parts.append(f"```text\n{output.data['text/plain']}\n```")
    parts.append(f'[Download the notebook]({stem}.ipynb){{ download="{stem}.ipynb" }}')
    return "\n\n".join(parts) + "\n", pictures


def _coloured(drawing: str, colours: dict[str, str]) -> str:
    for old, new in colours.items():
        drawing = drawing.replace(old, new)
    # Letters have no colour of their own.
    ink = colours.get("#000000", "#000000")
    return drawing.replace("<svg ", f'<svg fill="{ink}" ', 1)
