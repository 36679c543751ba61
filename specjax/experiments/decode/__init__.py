"""Decoding a data set with every strategy of a config, in alternation; results, report, dry run."""
