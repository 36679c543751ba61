"""Training objectives: labels, a teacher's distributions, labels of parallel heads.

Each file is one objective, registered under its config name (`contracts.registry.OBJECTIVES`);
`training.objective` defines their interface.
"""
