"""Training a model or its heads: what is trained, on which texts, how it is scored, dry run."""
