"""Diagnostics: check on a model's weights whether levelhead's results can be trusted."""
