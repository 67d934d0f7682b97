"""Several ranks of one program: what each says of itself in its graph file, and what
the graphs of all have in common.
"""
