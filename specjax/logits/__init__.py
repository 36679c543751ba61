"""Generation settings by Hugging Face's names: logits processors, stop criteria, guidance.

Each is registered under the name of its field; `contracts.logits_processor` defines the interface.
"""
