"""What changed between two graphs: result, text and picture."""
