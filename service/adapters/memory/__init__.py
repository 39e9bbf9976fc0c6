"""In-memory doubles of the ports, held to the same contract suites as the real ones."""
