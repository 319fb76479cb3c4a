"""What a group of rescalings is good for: one representative per orbit, balance, alignment, conservation."""
