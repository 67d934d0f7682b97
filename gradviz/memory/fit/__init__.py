"""Will a training step fit: its peak memory at any batch, from two tiny runs of the script in child processes.

`child` runs there with `tracker`, which notes every storage; `trace` replays the notes at another batch; `runs` starts the children
in a copy of the folder; `prediction` and `changes` draw the conclusions, and `table` words them.
"""
