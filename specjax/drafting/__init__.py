"""Everything that proposes tokens: models, n-grams, copies, parallel heads, cascades of them.

Each file is one drafter, registered under its config name (`contracts.registry.DRAFTERS`); what a
drafter must give is said in `contracts.drafter`.
"""
