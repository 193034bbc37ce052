"""The commands of `levelhead mitigate` and `levelhead mitigate select`."""
