"""The rulers. A measure is items, a readout and a reduction; one file for each family of them."""
