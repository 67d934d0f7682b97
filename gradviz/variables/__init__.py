"""The one scanner of the user's variables. Looks at types only, and runs no code of the
user's.
"""
