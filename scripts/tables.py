"""Write the tables of the README and of docs/ from the stored results.

A table stands between ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->``. NAME is
``results`` or ``noise`` for the README's overviews, the name of a recipe for its table,
or that name with ``-choices`` for what was chosen on validation nodes:

    python scripts/tables.py           # rewrite
    python scripts/tables.py --check   # exit with 1 if a table is stale
"""

import argparse
import re
import sys
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from gsebo.errors import InvalidInput
from gsebo.experiments import ExperimentRecipe, Store, load_recipe
from gsebo.report import accuracy_sheet, choices_sheet, gaps, gather_evidence
from gsebo.report.formats import as_markdown

ROOT = Path(__file__).resolve().parent.parent
MARKED = re.compile(
    r"(?P<begin><!-- (?P<name>[\w-]+):begin -->\n)"
    r".*?(?P<end><!-- (?P=name):end -->)",
    re.DOTALL,
)
CHOICES = "-choices"


def main() -> None:
    """Rewrite or check the tables of all files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="*", help="README.md and all docs/")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    options = parser.parse_args()
    store = Store(options.results)
    stale = []
    pages = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    for path in options.files or pages:
        text = path.read_text("utf-8")
        try:
            fresh = rewritten(text, store)
        except InvalidInput as error:
            sys.exit(f"{path.name}: {error}")
        if fresh != text:
            stale.append(path.name)
            if not options.check:
                path.write_text(fresh, "utf-8")
    if options.check and stale:
        sys.exit(f"tables of {', '.join(stale)} are stale: run `make readme`")


def rewritten(text: str, store: Store) -> str:
    """Fill every pair of markers anew."""
    tables = MARKED.findall(text)
    if len(tables) != text.count(":begin -->"):
        raise InvalidInput("a table begins and does not end; expected both markers.")
    return MARKED.sub(
        lambda found: f"{found['begin']}{table(found['name'], store)}\n{found['end']}",
        text,
    )


def table(name: str, store: Store) -> str:
    """Make the table of a marker."""
    overview = name == "results"
    if name in OVERVIEWS:
        recipe = OVERVIEWS[name]()
    else:
        recipe = load_recipe(name.removesuffix(CHOICES))
    evidence = gather_evidence(recipe, store)
    if name.endswith(CHOICES):
        sheet = choices_sheet(evidence)
    else:
        sheet = accuracy_sheet(evidence, brackets=overview)
    if name == "noise":
        # Accuracies alone: the paper's gains are told elsewhere.
        sheet = replace(sheet, tables=sheet.tables[:1])
    return as_markdown(replace(sheet, notes=(*sheet.notes, *gaps(evidence))))


def overview_recipe() -> ExperimentRecipe:
    """GSEBO and the controls that say most about it, on the same networks."""
    controls = load_recipe("controls")
    networks = controls.blocks[0].backbones
    blocks = (
        structs.replace(block, methods=[method])
        for method in ("vanilla", "frozen", "gsebo", "train_val")
        for block in controls.blocks
        if method in block.methods and block.backbones == networks
    )
    return replace(controls, blocks=tuple(blocks))


def noise_recipe() -> ExperimentRecipe:
    """Amortised strengths and what they are measured by, on Cora with false edges.

    The control has 200 epochs, and as many as they have.
    """
    beyond = load_recipe("beyond")
    networks = {
        "gcn": ["vanilla", "gsebo", "train_val", "amortised"],
        "mlp": ["train_val"],
    }
    blocks = (
        structs.replace(block, methods=[method], backbones=[network])
        for network, methods in networks.items()
        for method in methods
        for block in beyond.blocks
        if method in block.methods
        and network in block.backbones
        and "cora" in block.datasets
    )
    return replace(beyond, blocks=tuple(blocks))


OVERVIEWS = {"results": overview_recipe, "noise": noise_recipe}


if __name__ == "__main__":
    main()
