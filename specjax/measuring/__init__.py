"""Measures times: a stopwatch of model calls, their costs, predictions, roofline, machine."""
