"""Compares finished decode runs, with confidence intervals."""
