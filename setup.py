"""For tools that still run setup.py; the metadata are in pyproject.toml."""

from setuptools import setup

setup()
