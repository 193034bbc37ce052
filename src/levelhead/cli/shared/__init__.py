"""Shared parts of the commands: options, output, progress, exit codes."""
