"""Finished decode runs side by side: what they share, how they differ, with intervals."""
