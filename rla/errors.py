"""The one error that a user can mend. The command line prints it in one line and exits with code 2."""


class UserError(Exception):
    """Bad input: the message names the file (or key) and the remedy."""
