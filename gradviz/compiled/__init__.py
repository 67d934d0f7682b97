"""What `torch.compile` made of a backward pass, read after the fact: nothing is recompiled and nothing runs again."""
