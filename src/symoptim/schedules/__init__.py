"""Rates over time: pure functions for many runs at once, and the bold driver as a torch scheduler."""
