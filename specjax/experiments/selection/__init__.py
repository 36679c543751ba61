"""Choosing a drafter by the prompt: offline data, policies, learning curves."""
