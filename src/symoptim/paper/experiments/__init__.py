"""The paper's experiments: what is trained, by which rules, on which data."""
