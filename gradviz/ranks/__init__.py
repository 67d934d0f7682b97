"""Several processes of one program: which one this is, what each of them wrote, and what the graphs of all have in common."""
