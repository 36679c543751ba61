"""Audio of any length, transcribed by strategies side by side."""
