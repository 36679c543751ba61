"""Exceptions shown as one sentence: a user's mistake, a run ended by a signal."""


class UserError(ValueError):
    """Bad input from a config, flag or file; names the field, the value and what is allowed."""


class TerminationRequest(Exception):
    """A run that SIGTERM has ended, as before a preemption; it can be resumed."""
