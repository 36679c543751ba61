"""Describes TPUs without one: chips, topologies, compiled programs and predictions.

`chips.py` is the table of chips, `topology.py` their devices as described by libtpu, `hlo.py` reads
the text of a compiled program, `program.py` audits it (copies, collectives, what its loop reads),
`predict.py` turns reads into times and speedups.
"""
