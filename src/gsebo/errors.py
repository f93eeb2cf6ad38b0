"""The one error that means "what you gave cannot be used", and its warning."""


class InvalidInput(ValueError):
    """What the user gave cannot be used; the message says what was expected.

    The command line turns this into one sentence and exit code 2. Anything else that
    is raised is a defect of the library and keeps its traceback.
    """


class InputWarning(UserWarning):
    """What the user gave can be used, but they may not have meant it."""
