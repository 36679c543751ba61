"""The exceptions that are shown as one sentence: a user's mistake, a run that a signal ends."""


class UserError(ValueError):
    """Bad input from a config, flag or file; names the field, the value and what is allowed."""


class EndRequested(Exception):
    """A run that SIGTERM has ended, as before a preemption; what it left can be gone on from."""
