"""The command ``gsebo``: one file per subcommand.

``main``, the commands, ``options``, ``output``, ``plan`` and ``settings`` import no
torch at their top, so that help and usage errors are immediate; commands import the
rest when they run.
"""
