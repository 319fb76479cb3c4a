"""The step of the paper's networks in a dozen launches; :mod:`symoptim.engine.pairwise` is its meaning."""
