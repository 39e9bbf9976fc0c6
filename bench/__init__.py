"""How fast Dropgate is, beside what else one could do: `dropgate bench`. Nothing of the product imports this."""
