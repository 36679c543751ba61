"""The beams experiment."""
