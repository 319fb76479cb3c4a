"""The step of the paper's networks in few launches; :mod:`symoptim.engine.pairwise` is its meaning."""
