"""Recipes that the config files of the papers' experiments share."""
