"""Pure values, states and decisions; imports nothing of ours."""
