"""The report of the SegNet experiment: scores, pictures, sensitivity to the rate."""
