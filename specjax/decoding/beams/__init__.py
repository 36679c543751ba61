"""Beam search, plain and speculative, on the same models and caches as all other decoding.

One loop serves both: a round feeds nodes of a trie of hypotheses to the target in one call and then
takes exact beam steps for as long as the nodes it has read allow. Plain beam search is the round
that drafts nothing, of one step. `beam_search` names a strategy, `search` runs it
(docs/methods/beam_search.md).
"""
