"""Write the pictures of the README and of docs/, each for light and for dark pages.

Curves and histograms are those of `gsebo report`, from the stored results; diagrams are
the files of scripts/diagrams/, whose colours are named as the report's are:

    python scripts/pictures.py           # rewrite docs/assets/*-light.svg, *-dark.svg
    python scripts/pictures.py --check   # exit with 1 if a picture is stale
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from gsebo.experiments import Cell, ExperimentRecipe, Store, load_recipe
from gsebo.report import gather_evidence
from gsebo.report.figures.budgets import over_budgets
from gsebo.report.figures.drawing import Drawing, Panel
from gsebo.report.figures.strengths import strengths
from gsebo.report.page.render import page_file

ROOT = Path(__file__).resolve().parent.parent
ASSETS = ROOT / "docs" / "assets"
DIAGRAMS = ROOT / "scripts" / "diagrams"
WIDTH = 560
LINE = 22
LARGEST = 1.3
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif"
COLOUR = re.compile(r"--([a-z]+): (#[0-9a-f]{6});")
USED = re.compile(r"var\(--([a-z]+)[^)]*\)")
SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
# Network, method and setting of the lines that a picture has room for.
Line = tuple[str, str, str]
CONTROL = "400 epochs"


def main() -> None:
    """Write or check all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--assets", type=Path, default=ASSETS)
    options = parser.parse_args()
    stale = []
    for name, text in pictures(Store(options.results)):
        path = options.assets / name
        if not path.exists() or path.read_text("utf-8") != text:
            stale.append(name)
            if not options.check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, "utf-8")
    if options.check and stale:
        sys.exit(f"pictures {', '.join(stale)} are stale: run `make readme`")


def pictures(store: Store) -> Iterator[tuple[str, str]]:
    """Names and contents of all files."""
    drawn = {
        path.stem: path.read_text("utf-8") for path in sorted(DIAGRAMS.glob("*.svg"))
    }
    drawn |= {name: make(store) for name, make in FROM_RESULTS.items()}
    for name, svg in drawn.items():
        for scheme, colours in palettes().items():
            yield f"{name}-{scheme}.svg", coloured(svg, colours)


def palettes() -> dict[str, dict[str, str]]:
    """The report's own colours by their names, on light and on dark pages."""
    light, dark = page_file("colours.css").split("@media")
    found = dict(COLOUR.findall(light))
    return {"light": found, "dark": found | dict(COLOUR.findall(dark))}


def coloured(svg: str, colours: dict[str, str]) -> str:
    """A picture that stands in a file of its own, with the colours of one scheme."""
    svg = svg.replace("currentColor", "var(--ink)")
    return USED.sub(lambda found: colours[found[1]], svg).rstrip() + "\n"


def false_edges(store: Store) -> str:
    """Accuracy on Cora as random false edges are added."""
    lines = {
        ("gcn", "amortised", ""),
        ("gcn", "gsebo", ""),
        ("gcn", "vanilla", ""),
        ("gcn", "train_val", CONTROL),
        ("mlp", "train_val", CONTROL),
    }
    return curves(load_recipe("beyond"), store, lines, "cora", "Cora")


def prbcd(store: Store) -> str:
    """Accuracy on Cora that PRBCD has attacked, by its budget."""
    return curves(load_recipe("prbcd"), store, ATTACKED, "cora", "Cora")


def metattack(store: Store) -> str:
    """Accuracy on the published graphs that Metattack has made of Cora."""
    recipe = load_recipe("metattack")
    return curves(recipe, store, ATTACKED, "cora-meta", "Cora, Metattack")


ATTACKED = {
    ("gcn", "inoculated", ""),
    ("gcn", "amortised", ""),
    ("gcn", "vanilla", ""),
    ("gcn", "train_val", CONTROL),
    ("mlp", "train_val", CONTROL),
}


def curves(
    recipe: ExperimentRecipe, store: Store, lines: set[Line], begins: str, card: str
) -> str:
    """Some lines of a recipe on the datasets whose names begin so, in one panel."""

    def wanted(cell: Cell) -> bool:
        line = (cell.row, cell.method, cell.setting)
        return cell.dataset.startswith(begins) and line in lines

    evidence = gather_evidence(recipe, store)
    results = {cell: found for cell, found in evidence.results.items() if wanted(cell)}
    drawing = over_budgets(replace(evidence, results=results))
    assert drawing is not None, f"nothing is stored of {recipe.name}"
    panels = [one.panels[0] for one in drawing.groups[0].cards if one.title == card]
    return composed(f"{recipe.name}-curves", drawing, panels)


def edge_strengths(store: Store) -> str:
    """What became of true and false edges: one number for each, and amortised."""
    recipe = load_recipe("beyond")
    blocks = tuple(
        structs.replace(
            block, methods=[method], backbones=["gcn"], datasets=["cora"], noise=[5000]
        )
        for method in ("gsebo", "amortised")
        for block in recipe.blocks
        if method in block.methods
        and "gcn" in block.backbones
        and "cora" in block.datasets
        and 5000 in block.noise
    )
    drawing = strengths(gather_evidence(replace(recipe, blocks=blocks), store))
    assert drawing is not None, "nothing is stored of strengths"
    titles = {"gsebo": "GSEBO", "amortised": "amortised"}
    panels = []
    for panel in (card.panels[0] for card in drawing.groups[0].cards):
        words = f"{titles[panel.tags.methods[0]]}, Cora with 5,000 false edges: "
        panels.append(replace(panel, caption=f"{words}% of the group's edges"))
    return composed("strengths", drawing, panels)


def composed(name: str, drawing: Drawing, panels: Iterable[Panel]) -> str:
    """Panels one above the other, and below them the legend."""
    parts: list[str] = []
    shown: list[str] = []
    top = 0.0
    for panel in panels:
        parts.append(letters(0, top + 16, panel.caption))
        top += LINE
        width, height = natural_size(panel.svg)
        # A small panel would have letters that are too large.
        scale = min(WIDTH / width, LARGEST)
        parts.append(placed(panel.svg, 0, top, scale * width, scale * height))
        top += scale * height + 6
        shown.append(panel.svg.partition("<title>")[2].partition("</title>")[0])
    columns = 2
    for number, line in enumerate(drawing.legend):
        row, column = divmod(number, columns)
        x, y = column * WIDTH / columns, top + row * LINE
        width, height = natural_size(line.svg)
        parts.append(placed(line.svg, x, y + 4, width, height))
        parts.append(letters(x + width + 8, y + 15, line.caption))
    height = top + -(-len(drawing.legend) // columns) * LINE + 4
    title = "; ".join(shown)
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}" fill="currentColor" '
        f'font-family="{FONT}" role="img" id="{name}">\n'
        f"<title>{title}</title>\n{body}\n</svg>"
    )


def natural_size(svg: str) -> tuple[float, float]:
    """Width and height of what is drawn, in its own units."""
    found = SIZE.search(svg)
    assert found is not None
    return float(found[1]), float(found[2])


def placed(svg: str, x: float, y: float, width: float, height: float) -> str:
    """A drawing somewhere inside another, in the letters of that one."""
    svg = re.sub(r' (?:font-family|aria-label|role)="[^"]*"', "", svg)
    svg = re.sub(r"<title>.*?</title>", "", svg)
    where = f'x="{x:g}" y="{y:.0f}" width="{width:g}" height="{height:.0f}"'
    return svg.replace("<svg ", f"<svg {where} ", 1)


def letters(x: float, y: float, text: str) -> str:
    """One line of text."""
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:g}" y="{y:.0f}" font-size="14">{text}</text>'


FROM_RESULTS: dict[str, Callable[[Store], str]] = {
    "false_edges": false_edges,
    "metattack": metattack,
    "prbcd": prbcd,
    "strengths": edge_strengths,
}


if __name__ == "__main__":
    main()
