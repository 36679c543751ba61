"""The one exception for a user's mistake: shown as a single sentence, exit code 2."""


class UserError(ValueError):
    """Bad input from a config, flag or file; names the field, the value and what is allowed."""
