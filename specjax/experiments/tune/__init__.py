"""The best draft length and thresholds of a strategy: a closed form, then rounds of trials."""
