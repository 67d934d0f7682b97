"""The rules of the health checks, one family to a module, and nothing else: what several
families say is in `checks.telling`.
"""
