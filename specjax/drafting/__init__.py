"""Drafters: models, n-grams, copies, parallel heads, and cascades of them.

Each file is one drafter, registered under its config name (`contracts.registry.DRAFTERS`);
`contracts.drafter` defines their interface.
"""
