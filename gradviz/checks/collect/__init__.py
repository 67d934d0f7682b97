"""Turns live models, optimizers, tensors and code into the plain facts that the rules
look at.
"""
