"""Sweeps fields of a config over a grid, with one decode per point; resumable."""
