"""The step of the paper's networks in a dozen launches, in Triton; :mod:`symoptim.engine.pairwise` is its meaning."""
