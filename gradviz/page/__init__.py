"""The interactive page: one offline HTML file in which the graph opens, explains itself
and plays its backward pass.

    graph -> order -> groups -> segments -> leaves -> cells -> sheets -> pack -> one
    file

Every group is laid out once, here, alone and with its children closed; the browser only
stretches the sheet around what is opened. The viewer is in `web/`, plain JavaScript
modules that `html` joins. Nothing outside this folder knows of it but the registry.
"""
