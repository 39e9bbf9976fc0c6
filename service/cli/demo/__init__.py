"""`dropgate demo`: a whole sale on this machine, over HTTP, with buyers who pay, cancel, forget and come back."""
