"""Many training runs at once: one network shape, a leading run axis, every run with its own everything."""
