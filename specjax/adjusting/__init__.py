"""Generation settings as Hugging Face has them: each an adjustment of next-token logits
(`core.adjustment`), registered under the name of its field."""
