"""The commands, one module for each or for a natural pair: a short call of the library; imports wait until a command runs."""
