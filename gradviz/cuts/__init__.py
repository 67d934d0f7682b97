"""Which line of a program cuts a tensor off from its graph, seen while it runs: in
words, and as a part of the picture.
"""
