"""The step of the paper's networks in few launches; :mod:`symoptim.ensemble.pairwise` is its meaning."""
