"""From live autograd objects to a Graph: traversal, saved tensors, names, and torch's
private corners.

The way in is `walk.capture`: `outputs` finds where to begin, `walk.traverse` visits the
nodes, and `description` makes a record of each, with what `slots`, `saved`, `tensors`,
`names` and `data` read. `places` is what whoever knows lines and modules is asked and
answers. `private` has all private names of torch.
"""
