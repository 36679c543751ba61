"""Decodes a data set with all strategies of a config in alternation; report, dry run."""
