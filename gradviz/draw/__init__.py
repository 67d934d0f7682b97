"""Turns a Graph into text or a picture: one module per output, each with one row in the
registry.
"""
