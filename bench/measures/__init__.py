"""One module a kind of measurement; each gives figures, and each figure of a sale its audit."""
