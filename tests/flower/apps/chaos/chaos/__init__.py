"""A small federation that waits at one stage of its run."""
