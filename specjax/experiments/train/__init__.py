"""Trains a model or its heads: start, data, objective, evaluation, dry run."""
