"""Configs of all jobs: their defaults and shape, the command line, checks that jobs share."""
