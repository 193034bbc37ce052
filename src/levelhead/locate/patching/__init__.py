"""Activation patching between counterfactual twins, and causal mediation."""
