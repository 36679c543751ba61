"""Reports of a run: terminal tables, the HTML page, plots of one style (`plots/style.py`)."""
