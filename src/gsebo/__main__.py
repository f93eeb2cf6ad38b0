"""``python -m gsebo`` is the command ``gsebo``."""

from gsebo.cli.main import run

if __name__ == "__main__":
    run()
