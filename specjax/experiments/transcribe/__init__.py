"""Transcribes audio of any length by several strategies side by side."""
