"""Which parts of a model carry a measured bias: gradient, exact ablation, the HeadMap."""
