"""What protects the user's run while gradviz looks at it: signal handlers wait, modes see
nothing, torch's functions tell of their calls, graphs stay safe to delete.
"""
