"""The command line: a module for each command, or for several that are alike."""
