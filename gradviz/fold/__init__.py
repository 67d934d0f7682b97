"""From a Graph to a smaller Graph: modules, repeats and loops as single boxes."""
