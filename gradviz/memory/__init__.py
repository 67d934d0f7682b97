"""What autograd keeps for backward: how large it is, who holds it, what a checkpoint
would save.
"""
