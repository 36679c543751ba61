"""A policy that chooses a drafter by the target's embedding of the prompt.

    python -m specjax.main --config=configs/selection/policy.py --workdir=runs/policy \
      --config.data=runs/select_data --config.test=runs/select_test

`data` and `test` are folders that `configs/selection/data_multi30k.py` and its like have made;
without `test` a tenth of the data is held out. Leaves `policy/`, `results.json` (reward and, where
the test queries were timed, speedup of the policy, of every arm, of the best choice and of chance)
and then `oracle.json`, the best choices. Seconds on two CPU cores for 5,000 queries.
`--config.reward.align_weight=1` rewards alignment alone (experiment 1),
`--config.reward.kind=speedup` what was measured, `--config.arms="('a', 'b')"` offers some arms.
Expected: the paper's policies lose 1 to 4% of the better drafter's speedup on each task (Table 1).
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import select_config


def get_config() -> ConfigDict:
    """The training of Table 9: exact objective, AdamW, 3 epochs of batches of 64."""
    return select_config()
