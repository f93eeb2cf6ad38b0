"""The one error that means "this cannot be measured as asked"."""


class BenchmarkError(Exception):
    """One sentence for the person who asked; the exit code is then 2."""
