"""What takes how long: a stopwatch of model calls, their costs, predictions, roofline, machine."""
