"""Parameters of methods, and names of things, as Python hands them in."""

from pathlib import Path
from typing import Any, final, get_type_hints

from hypothesis import strategies as st
from tests.methods.examples import quick
from tests.methods.parameter_kinds import bad_values
from torch_geometric.data import Data

from fuzz.damage import JUNK, NUMBERS, REALS, TEXTS
from fuzz.target import Draw, Target, require
from gsebo import Checkpoint, generate_graph, load_model
from gsebo.data import NOISE_KINDS, apply_noise, apply_split, load, load_npz
from gsebo.data.formats.folder import GraphFolder
from gsebo.experiments import Store
from gsebo.experiments.recipe import load_recipe
from gsebo.methods import METHODS
from gsebo.methods.parameters import alternatives, declared_parameters
from gsebo.nn import BACKBONES

# So many steps are allowed, and take long.
_LONG = (10**6, 1_000_000.0)
_CHOICES = [*METHODS, *BACKBONES, "GIN", "GATv2", "adam", "sgd", "momentum", "reverse"]
_CHOICES += ["paper", "loss", "accuracy", "holdout", "val", "auto", "cpu", "cuda:99"]
_USUAL = st.integers(0, 4) | st.floats(0, 1) | st.sampled_from(_CHOICES) | st.booleans()
_FITS = {int: st.integers(1, 4), float: st.floats(0.01, 0.9), bool: st.booleans()}
_VALUES = (
    NUMBERS.filter(lambda value: value not in _LONG)
    | REALS.filter(lambda value: value not in _LONG)
    | JUNK.filter(lambda value: not isinstance(value, int | float))
)


def _graph() -> Data:
    return generate_graph(24, average_degree=3.0, num_features=3, seed=3)


@final
class Parameters(Target):
    """Any method with any value of any parameter: refused, or fitted."""

    name, share = "parameters", 4

    def draw(self, draw: Draw) -> Any:
        """Draw a method and some of its parameters."""
        name = draw(st.sampled_from(sorted(METHODS)))
        declared = declared_parameters(METHODS[name].estimator)
        plain = get_type_hints(METHODS[name].estimator.__init__)
        changes = {}
        for _ in range(draw(st.sampled_from([1, 1, 2]))):
            key = draw(st.sampled_from(sorted(declared)))
            bad = st.sampled_from([*bad_values(key, declared[key]), None])
            fits = _FITS.get(alternatives(plain[key])[0], _USUAL)
            kinds = [fits, fits, fits, _USUAL, _VALUES, bad]
            changes[key] = draw(draw(st.sampled_from(kinds)))
        if draw(st.integers(0, 9)):
            return name, changes, 1
        return name, changes, draw(st.integers(1, 3) | _VALUES)

    def read(self, case: Any, place: Path) -> None:
        """Fit, and predict."""
        del place
        name, changes, replicas = case
        model = quick(name, **changes).fit(_graph(), replicas=replicas)
        require(len(model.probability_) == 24, "a row for each node")
        require(bool(model.probability_.isfinite().all()), "probabilities")
        model.predict_proba(_graph())


_WORDS = ["file", "random", "ratio", "planetoid", "halves", "seen", "unseen", "seed"]
_WORDS += [*NOISE_KINDS, "10/20/70", "20/500/1000", "2/5/5", "20", "0", "-1", "9" * 20]
_PARTS = st.sampled_from(_WORDS)
_COMPOSED = st.lists(_PARTS | _PARTS | TEXTS, min_size=1, max_size=4).map(":".join)
_NAMES = ["", ".", "/", "/dev/zero", "/dev/null", "x" * 300, "x/" * 3000, "\x00", "-"]
_NAMES += ["\ud800", "g.npz", "~/no", "cora", "table1", "x.toml", "//", "..", "a\x00"]
_PATHS = st.sampled_from(_NAMES)
_USES = ("split", "noise", "load", "npz", "model", "folder", "recipe", "store", "fit")


@final
class Names(Target):
    """Names of splits, noise, graphs, recipes, models and folders."""

    name, share = "names", 3

    def draw(self, draw: Draw) -> Any:
        """Draw a name and what it is to name."""
        use = draw(st.sampled_from(_USES))
        names = _COMPOSED if use in ("split", "noise") else _PATHS | TEXTS
        return use, draw(names | names | JUNK if use in ("split", "noise") else names)

    def read(self, case: Any, place: Path) -> None:
        """Ask for what it names."""
        use, name = case
        uses = {
            "split": lambda: apply_split(_graph(), name),
            "noise": lambda: apply_noise(_graph(), name),
            "load": lambda: load(name),
            "npz": lambda: load_npz(f"{place}/{name}"),
            "model": lambda: load_model(f"{place}/{name}"),
            "folder": lambda: GraphFolder.open(f"{place}/{name}"),
            "recipe": lambda: load_recipe(name),
            "store": lambda: Store(Path(f"{place}/{name}")).results(),
            "fit": lambda: quick("frozen").fit(
                _graph(), checkpoint=Checkpoint(f"{place}/{name}", resume=True)
            ),
        }
        uses[use]()
