"""What a step of an optimizer costs, beside its rivals: cases, contestants, gate, clock, records."""
