"""The papers' experiments (TOML) and figures (CSV), and the findings about the thesis that compares
fair methods.
"""
