"""The papers' experiments (TOML) and figures (CSV), and what the thesis on group fairness found, on our results."""
