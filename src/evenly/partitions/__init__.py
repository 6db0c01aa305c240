"""Ways to deal rows to clients, one file each."""
