"""Quality of texts against references: BLEU, ROUGE, exact matches, right numbers and choices.

Each file is one metric, registered under its config name (`core.registry.METRICS`); what a metric
must give is said in `metrics.metric`.
"""
