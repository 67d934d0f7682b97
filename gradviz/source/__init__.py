"""The one static reader of the user's code: lines, statements, and how a tensor came
about. Runs nothing.
"""
