"""From measurements to what people read: a table, a verdict on each goal, pictures, and one JSON document."""
