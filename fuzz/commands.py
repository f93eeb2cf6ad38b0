"""Command lines, inside this process, with files that may be damaged."""

import os
from pathlib import Path
from typing import Any, final

from hypothesis import strategies as st
from tests.methods.examples import quick, small_graph
from typer.testing import CliRunner

from fuzz.damage import NUMBERS, REALS, TEXTS, bytes_damage
from fuzz.target import Draw, Originals, Target, Violation
from gsebo.cli.main import app
from gsebo.data import save_npz
from gsebo.data.formats.folder import write_folder
from gsebo.errors import InvalidInput

_FILES = ["g.npz", "folder", "model", "e.csv", "n.csv", "r.toml", "results", "new"]
_TABLES = (
    "--nodes --source --target --id --label --weight --leave-out --delimiter "
    "--undirected"
)
_OPTIONS = {
    "fit": "--method --backbone --seed --set --split --noise --out --json --batch-size "
    "--sampler --memory --normalize --quiet --preset --strengths --predictions "
    f"--resume --data-dir --device --force {_TABLES}",
    "compare": f"--methods --seed --set --split --noise --json {_TABLES}",
    "predict": f"--out --json --strengths --memory --normalize --force {_TABLES}",
    "inspect": "--top --sort --export --out --json --force",
    "show": "--seeds --format --choices --results --quiet",
    "list": "--json",
    "results verify": "--results --fix --json",
    "results migrate": "--results --json",
    "data convert": "--edges --out --split --num-nodes "
    f"--duplicates --json --seed --force {_TABLES}",
    "data info": "--json --data-dir",
    "data verify": "--json --data-dir",
}
_FLAGS = [
    "--json",
    "--quiet",
    "--normalize",
    "--resume",
    "--force",
    "--choices",
    "--fix",
    "--undirected",
]
_SHORT = ["max_outer_steps=2", "inner_steps=2"]
# What an option usually takes.
_USUAL = {
    "--method": "gsebo vanilla frozen",
    "--backbone": "gcn sage mlp",
    "--seed": "0 1",
    "--set": "dropout=0.2 hidden_channels=3 dropout=nan num_layers=1e9 = x=1",
    "--split": "file random:20/30/50 ratio:50/25/25 halves",
    "--noise": "5 removed:10 labels:20",
    "--batch-size": "1 8",
    "--memory": "1GB 1 10KB",
    "--preset": "paper default",
    "--device": "cpu",
    "--methods": "vanilla,gsebo vanilla x",
    "--out": "new new.csv p.npz",
    "--export": "new.csv new.parquet new.graphml new.npz",
    "--sort": "suspicious weight ratio changed colour",
    "--top": "3 0",
    "--results": "results new",
    "--format": "markdown csv json text",
    "--edges": "e.csv",
    "--nodes": "n.csv",
    "--num-nodes": "4 9",
    "--id": "id f0",
    "--label": "label",
    "--source": "source target",
    "--target": "target",
    "--weight": "weight source",
    "--leave-out": "f0",
}
_WORDS = (
    "gsebo vanilla gcn vanilla,gsebo cpu json removed:10 paper 0 x=1 = 1GB -- --help"
)
_VALUES = (
    st.sampled_from([*_FILES, *_WORDS.split()])
    | NUMBERS.filter(lambda value: not 4 < value <= 10**6).map(str)
    | REALS.map(str)
    | TEXTS
)
_USUAL_FIRST = {
    "fit": "g.npz",
    "compare": "g.npz",
    "predict": "model",
    "inspect": "model",
    "show": "r.toml",
    "data info": "g.npz",
}
_VERIFIES = ("results verify", "results migrate", "data verify")


@final
class Commands(Target):
    """Words on the command line: exit code 0, or 2 with one sentence and its page."""

    name, share = "commands", 3
    may_change = True
    may_leave = frozenset({".lock"})

    def prepare(self, folder: Path) -> None:
        """Write one of each file that there is."""
        inside = folder / "all"
        inside.mkdir()
        data = small_graph(30)
        save_npz(data, inside / "g.npz")
        write_folder(data, inside / "folder")
        quick("gsebo", max_outer_steps=2).fit(data).save(inside / "model")
        (inside / "e.csv").write_text("source,target\n0,1\n1,2\n2,0\n2,3\n")
        (inside / "n.csv").write_text("id,label,f0\n0,a,1\n1,b,2\n2,a,3\n3,b,0.5\n")
        (inside / "r.toml").write_text(
            'title = "t"\n[[trials]]\nmethods = ["vanilla"]\nbackbones = ["gcn"]\n'
            'datasets = ["cora"]\n'
        )
        (inside / "results").mkdir()

    def begin(self, folder: Path) -> None:
        """Read them."""
        self._originals = Originals(folder)

    def draw(self, draw: Draw) -> Any:
        """Draw words, and perhaps a file and its damage."""
        command = draw(st.sampled_from([*_OPTIONS, "fit", "predict", "data convert"]))
        words = command.split()
        given = _USUAL_FIRST.get(command)
        if not draw(st.integers(0, 7)):
            words.append(draw(st.sampled_from(_FILES) | TEXTS))
        elif given is not None:
            words.append(given)
        for _ in range(draw(st.integers(0, 3))):
            option = draw(st.sampled_from(_OPTIONS[command].split()))
            words.append(option if draw(st.integers(0, 30)) else draw(TEXTS))
            if option not in _FLAGS:
                usual = st.sampled_from(_USUAL.get(option, "1 new").split())
                words.append(draw(usual if draw(st.integers(0, 3)) else _VALUES))
        if command == "data convert" and draw(st.booleans()):
            words += ["--edges", "e.csv", "--out", "new"]
        if command in ("fit", "compare"):
            words += [word for short in _SHORT for word in ("--set", short)]
        files = self._originals.files["all"]
        damage = None
        if not draw(st.integers(0, 2)):
            name = draw(st.sampled_from(sorted(files)))
            damage = name, bytes_damage(draw, files[name])
        # No system hands over a word with a zero.
        return command, [word.replace("\x00", "") for word in words], damage

    def write(self, case: Any, place: Path) -> None:
        """Write all files."""
        folder = self._originals.copy("all", place)
        if case[2] is not None:
            (folder / case[2][0]).write_bytes(case[2][1])

    def read(self, case: Any, place: Path) -> None:
        """Run the command there."""
        command, words, _ = case
        os.chdir(place / "copy")
        try:
            result = CliRunner().invoke(app, words, catch_exceptions=False)
        finally:
            os.chdir("/")
        code, lines = result.exit_code, result.stderr.splitlines()
        if code == 1 and command in _VERIFIES:
            return
        if code not in (0, 2):
            raise Violation(f"exit code {code}\n{result.output}")
        if code == 2:
            told = [line for line in lines if not line.startswith("Warning: ")]
            begin = [line.partition(": ")[0] for line in told]
            if begin != ["Error", "Read on"] or result.stdout:
                raise Violation(f"not one sentence\n{result.output}")
            raise InvalidInput(told[0])
