"""The tensors of a program: an inventory, and its table."""
