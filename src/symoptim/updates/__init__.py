"""Single steps as pure functions: what every optimizer, engine and kernel of this package computes."""
