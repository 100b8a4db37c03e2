"""The exceptions whose messages are meant for users."""


class UserError(Exception):
    """Something the user can fix. Its message is one line that says what to do; the command line exits with 2."""


class CannotLearn(UserError):  # noqa: N818
    """These settings cannot learn from these data; the machine and the files are fine."""


class LostContact(Exception):  # noqa: N818
    """Another process of a distributed run is gone, or can no longer be reached."""
