"""Finds the best fields of a strategy: a closed form, then rounds of trials."""
