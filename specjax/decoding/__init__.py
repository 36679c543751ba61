"""The decode loop, its state and trace, and strategies.

The loop only knows `specjax.contracts`. `Strategy` is a drafter, a reader, a rule and sampling
settings; `generate` decodes prompts with one in a single jitted program.
"""
