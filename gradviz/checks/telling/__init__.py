"""What several families of rules say: what to do about a cut, why a parameter gets no
gradient, what tensors of earlier steps are called, that something has diverged.
"""
