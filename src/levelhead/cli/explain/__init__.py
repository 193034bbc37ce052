"""The commands of `levelhead explain`."""
