"""Uses of rescalings: one representative per orbit, equalization, alignment, conserved quantities."""
