"""The paper, arXiv:1511.01754, reproduced: its data, experiments, records and reports."""

from symoptim.paper.api import reproduce

__all__ = ["reproduce"]
