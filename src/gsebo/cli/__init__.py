"""The command ``gsebo``: one file per subcommand.

``main`` loads the file of the command that is called and no other. Commands that train
check names first, and load torch after.
"""
