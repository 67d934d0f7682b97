"""From live autograd objects to a Graph: traversal, saved tensors, names, and torch's
private corners.
"""
