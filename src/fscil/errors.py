"""The one exception that people are meant to read."""


class UserError(Exception):
    """Something the user can put right. Its message is one line that says what to do; the command line exits with 2."""
