"""GGUF files, as llama.cpp writes them: configuration, weights and tokenizer in one file.

A file is read like a Hugging Face folder: `configuration` converts its metadata to the fields of a
`config.json`, `tensors` gives its tensors the names that the family reads, and the ordinary path
does the rest. Nothing here needs PyTorch; the package `gguf` dequantizes.
"""
