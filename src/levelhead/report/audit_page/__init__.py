"""The report of an audit as one HTML page."""
