"""From boxes and wires to positions. Knows no graph and no picture format."""
