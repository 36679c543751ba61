"""Names of loops in compiled programs and profiles, by which their audit finds them."""

ROUNDS = "rounds"
"""The rounds of a decode; long prompts are read in a loop of their own."""

CATCHING_UP = "catching_up"
"""Feeding what a drafter's model has not read; most rounds do not run it."""
