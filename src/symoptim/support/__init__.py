"""What ensembles, bench and the reproduction share: devices, seeds, files, locks, provenance, plots."""
