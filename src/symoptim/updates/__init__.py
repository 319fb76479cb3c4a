"""Single steps as pure functions: what every optimizer, ensemble and kernel of this package computes."""
