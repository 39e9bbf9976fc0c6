"""What is measured, as processes: Dropgate's parts, the floors, the load generator."""
