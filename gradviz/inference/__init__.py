"""Which module ran each operation of a graph that nobody recorded: a guess, from what the graph and the model tell.

`scopes.infer_scopes` is the one public function. It goes in three steps:

1. `scopes.find_anchors`: who owns a parameter worked with it, so its operations are certain, or nearly.
2. `order.find_calls`: operations ran in an order, and a call is an interval of it; where the same things repeat, it is several.
3. `extents`: what lies between belongs to where few values pass, where calls of one class agree, and where a module stands that
   makes such operations. `adapter_ends` knows one more sign: the sum at which frozen weights and those beside them meet.

`order` holds the operations as they ran, `layers` what torch's classes make. Knows no torch, and no recording.
"""
