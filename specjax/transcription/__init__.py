"""Speech of any length, transcribed window by window."""
