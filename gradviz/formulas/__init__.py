"""What each op computes, what its backward function sends to each input, and what it
must keep for that. Knows no torch.
"""
