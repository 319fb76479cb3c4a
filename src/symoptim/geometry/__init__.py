"""Pure mathematics: tensors in, tensors out, any leading batch axes, no rate and no state."""
