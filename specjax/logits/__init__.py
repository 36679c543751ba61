"""Generation settings as Hugging Face has them: each an adjustment of next-token logits
(`contracts.logits_processor`), registered under the name of its field."""
