"""Health checks: what is wrong with a graph, where, and what to do."""
