"""How the target reads a draft, and which drafted tokens are accepted.

A reader (`contracts.reader`) calls the target on the whole draft, on states that it has already, on
as few tokens as fit, or layer by layer; a rule (`contracts.rule`) judges what was read. Each is
registered under its config name (`contracts.registry.READERS` and `RULES`).
"""
