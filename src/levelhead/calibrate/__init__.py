"""Model organisms: small models with a planted, known bias, to test the measures themselves."""
