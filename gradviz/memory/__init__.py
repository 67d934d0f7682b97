"""What autograd keeps for backward: how large it is, who holds it, what a checkpoint
would save.

`saved` counts, `freed` says what is left where modules run in checkpoints, `checkpoint`
chooses which should, and `table` words both. `oom` explains a run that ran out of memory.
"""
