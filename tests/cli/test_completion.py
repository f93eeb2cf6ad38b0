"""What a shell completes, as bash does it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def bash(script: str, home: Path) -> str:
    """Standard output of a script in a shell that has nothing of the user's own."""
    # More than one command, else the shell is replaced and cannot be found.
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", f"{script}\ntrue"],
        env={**os.environ, "PATH": PATH, "HOME": str(home)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("gsebo sh", {"show"}),
        ("gsebo fit cora --met", {"--method", "--metric"}),
        ("gsebo data ver", {"verify"}),
        ("gsebo --repro", {"--reproducible"}),
    ],
)
def test_commands_and_options_are_completed(
    tmp_path: Path, typed: str, offered: set[str]
) -> None:
    words = typed.split()
    out = bash(
        'eval "$(gsebo --show-completion)"\n'
        f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}\n"
        '_gsebo_completion gsebo; printf "%s\\n" "${COMPREPLY[@]}"',
        tmp_path,
    )
    assert set(out.split()) == offered


def test_it_is_installed_where_the_page_says(tmp_path: Path) -> None:
    out = bash("gsebo --install-completion", tmp_path)
    script = tmp_path / ".bash_completions" / "gsebo.sh"
    assert f"bash completion installed in {script}" in out.replace("\n", "")
    assert str(script) in (tmp_path / ".bashrc").read_text("utf-8")
    page = Path(__file__).parents[2] / "docs" / "install.md"
    assert "`~/.bash_completions/gsebo.sh`" in page.read_text("utf-8")
    found = bash(f"source {script}; complete -p gsebo", tmp_path)
    assert found == "complete -o default -F _gsebo_completion gsebo\n"
