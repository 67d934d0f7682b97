"""From a graph to a smaller graph or to a plain result. Prints nothing."""
