"""What training can minimize: the labels, a teacher's distributions, labels of parallel heads.

Each file is one objective, registered under its config name (`contracts.registry.OBJECTIVES`);
`training.objective` says what an objective must give.
"""
