"""Readers, which run the target on a draft, and acceptance rules.

A reader (`contracts.reader`) calls the target on the whole draft, from states of an earlier call,
at the narrowest compiled width, or layer by layer. A rule (`contracts.rule`) judges the outputs.
Both are registered under their config names (`contracts.registry.READERS` and `RULES`).
"""
