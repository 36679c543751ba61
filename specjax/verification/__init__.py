"""Acceptance rules: which drafted tokens stand, and what the target writes behind them.

Each file is one rule, registered under its config name (`core.registry.RULES`); what a rule must
give is said in `core.rule`.
"""
