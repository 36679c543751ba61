"""Quality of texts against references: BLEU, ROUGE, exact matches, right numbers and choices.

Each class is registered under its config name (`contracts.registry.METRICS`); `metrics.metric`
defines their interface.
"""
