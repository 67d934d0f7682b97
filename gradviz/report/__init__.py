"""How results are told: the words for parts of a graph, terminal tables, plain text,
HTML tables.
"""
