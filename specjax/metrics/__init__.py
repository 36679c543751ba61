"""Quality of texts (`quality/`), and figures of a decode from its traces.

Acceptance, rounds, BiLD's counters, operations, ties, groups of examples: functions of
`decoding.trace.Trace` and of outputs, in numpy on the host.
"""
