"""What a run shows: tables of the terminal, the HTML page, plots of one look (`plots/style.py`)."""
