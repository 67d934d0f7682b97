"""Where each node came from: module hooks and source lines, noted while the user's code
runs.

1. While it runs, `session` hears of nodes and backward calls, `module_calls` of modules,
   `running` marks the frames of functions, and `other_threads` sees who else may make
   nodes. They write into one `event_log` a thread, by sequence number.
2. When a graph is walked, `record` gives the walker an attribution: `attribution` finds
   the `Moment` of each node in the logs.
3. What the code says of these moments is read then: loops and statements (`program`,
   `constructs`), variables (`assigned`), and what ops were given that needs no gradient:
   `operands` asks `given` for the expressions, `moments` follows their names from
   function to caller, `numbers` says what is no tensor, `expressions` what the rest is.

Five words for where code is: a `Place` is a line, with the script's own where that called
a library; a `CallSite` is an instruction and the site that called its function; a `Spot`
(`source/spots.py`) is the expression that stands there; a `Moment` is a site in one call
of a function and of a module; and `Where` is a moment whose spot and turns are known.

`failure` reads what a forward had computed when it failed.
"""
