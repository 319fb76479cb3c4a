"""Semantic segmentation: classes, scores, losses and pictures of CamVid."""
