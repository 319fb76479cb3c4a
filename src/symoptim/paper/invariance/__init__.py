"""One network from two scalings of its weights."""
