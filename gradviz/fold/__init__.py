"""Folds a Graph: modules, repeats and loops become single boxes.

The way in is `fold.opened`. It goes in three steps:

1. `order` puts all ops into one order, `program` chooses which calls, loops and
   statements of the code are groups, and `grouping` makes the tree of them, whose
   nodes are `groups.Section`; `loops` and `runs` join what repeats.
2. `opening` says what of the tree is open. `filling` opens as much as a page holds, by
   the estimates of `sizes`; `windows` closes the middle of what is too long. `fold`
   measures a few of such views as pictures, and takes the best.
3. `folding` makes boxes and edges of what is closed, and `titles` names them; `export`
   gives the same to users as a smaller `Graph`.

`crop` leaves one module, `outline` makes the rows of `gradviz tree`, with `flops`.
"""
