"""The commands of `levelhead data` and `levelhead data mine`."""
