"""An edit chosen on one part of the data and reported on the other."""
