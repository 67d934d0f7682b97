"""Analyses that need real gradients: flow, and the chain rule path by path."""
