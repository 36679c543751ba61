"""The tasks of the papers: where each is read, how it is asked, and how answers are scored.

Each file is one data set, registered under the config names of its tasks (`core.registry.TASKS`);
what a task must give is said in `data.task`.
"""
