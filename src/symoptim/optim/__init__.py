"""The updates as ``torch.optim`` optimizers: groups, state, closures; the formulas are in ``updates``."""
