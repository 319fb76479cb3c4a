"""Table 2 and the trajectories: the MNIST experiment."""
