"""What `torch.compile` made of a backward pass, as far as a node says it: operations,
and inputs without a gradient.
"""
