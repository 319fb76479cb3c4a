"""Records of training runs in one SQLite file: written as things happen, and enough to go on from."""
