"""What training can minimise: the labels, a teacher's distributions, labels of parallel heads.

Each file is one objective, registered under its config name (`core.registry.OBJECTIVES`); what an
objective must give is said in `training.objective`.
"""
