"""Which line of a program cuts a tensor off from its graph, seen while it runs: in
words, and as a part of the picture.

Read it from the text to the answer; each module uses those before it:

1. `operations`: what one operation does to the graph of what goes into it, by its name.
2. `dataflow`: which value goes into which within one file, as its text says; what gives
   a name its value it asks `source/bindings.py`.
3. `recorded`: these files beside the recording: what was computed, and who called whom.
4. `leaves`: which values are leaves, by what variables hold.
5. `flow`: what goes into a value across calls, whether it had a graph, and where it was
   lost.
6. From there `finder` goes back from the graph and its outputs, to the cuts; and
   `dead_ends` goes on from a leaf, to values that nothing uses.
7. `answers` asks them all why one tensor gets no gradient; `words` are its sentences.

`parts` draws what was cut off, `training` tells of all parameters in one table,
`no_effect` finds lines that drop what they compute, and `classes` where a class makes a
parameter.
"""
