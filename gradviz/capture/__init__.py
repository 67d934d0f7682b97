"""Reads live autograd objects into detached graphs. The only package that does, with the gradient analyses."""
