"""The tasks of the papers: where each is read, how it is asked, and how answers are scored.

Each class is registered under a config name (`contracts.registry.TASKS`); `data.task` says what a
task must give.
"""
