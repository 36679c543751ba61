"""The decode loop, its state and trace, and strategies: what runs, put together from parts.

The loop knows contracts only (`core`). `Strategy` is a drafter, a reader, a rule and sampling
settings; `generate` decodes prompts with one in a single jitted program.
"""
