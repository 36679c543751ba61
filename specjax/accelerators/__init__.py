"""TPUs described without one: chips, topologies, compiled programs and what they promise.

`chips.py` is the table of chips, `topology.py` their devices by libtpu's word, `hlo.py` reads the
text of a compiled program, `program.py` audits it (copies, collectives, what its loop reads),
`predict.py` turns reads into times and speedups.
"""
