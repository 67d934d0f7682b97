"""Runs the user's program and picks the graph to read: target, script, backward calls,
failure.
"""
