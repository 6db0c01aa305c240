"""Any method on a small federation."""
