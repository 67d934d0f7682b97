"""Tests of the health checks."""
