"""The error for bad input. The command line prints it in one line and exits with code 2."""


class UserError(Exception):
    """Bad input. The message names the file or key, and the remedy."""
