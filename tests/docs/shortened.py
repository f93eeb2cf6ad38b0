"""Commands of pages, with parameters that shorten their fits."""

_QUICK = {
    "auto": ("num_folds=2", "max_epochs=20"),
    "amortised": ("num_folds=2", "max_outer_steps=1", "refit_epochs=10"),
    "gsebo": ("max_outer_steps=3",),
}


def shortened(words: list[str]) -> list[str]:
    """A command line of ``gsebo``, without that name, that takes less long."""
    words = list(words)
    if words[0] == "suspects":
        words += ["--rounds", "1"]
    if words[0] == "fit":
        method = next((name for name in _QUICK if name in words), "gsebo")
        words += [part for one in _QUICK[method] for part in ("--set", one)]
    return words
