"""The tasks of the papers: sources, prompts and metrics.

Each class is registered under a config name (`contracts.registry.TASKS`); `data.task` defines the
interface.
"""
