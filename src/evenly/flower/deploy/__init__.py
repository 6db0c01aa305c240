"""Flower's own processes: certificates, keys, SuperLink and SuperNodes, started, followed and stopped."""
