"""Semantic segmentation: one large network trained on its own, its scores and its pictures."""
