FOUND = {}
REFUSED = {}
