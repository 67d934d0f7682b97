"""The rules of the health checks, one family to a module; in `raised`, what the messages
of torch mean. What several families say is in `checks.telling`.
"""
