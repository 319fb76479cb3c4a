"""From records to tables: needs no torch."""
