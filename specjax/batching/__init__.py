"""Batches that never drain: prompts in, rows out, on the host."""
