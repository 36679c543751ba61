"""Fields of a config over a grid, one decode experiment a point, resumable."""
