"""Dropgate's reserve use case without HTTP: what the batch path itself can do."""
