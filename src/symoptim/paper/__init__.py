"""The paper, arXiv:1511.01754, reproduced: its data, experiments, records and report."""
