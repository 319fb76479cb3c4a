"""Fused steps: what :mod:`symoptim.updates` means, in one pass over memory."""
