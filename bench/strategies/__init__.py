"""The ways in which others sell a limited stock, one a file, to be measured beside Dropgate and audited alike."""
