"""Measures of many groups at once, and of two crossed attributes: tables of items by groups."""
