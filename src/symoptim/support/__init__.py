"""What the ensembles, the bench and the reproduction share: files, locks, provenance, plots."""
