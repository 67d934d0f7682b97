"""The rules of the health checks, one family to a module."""
