"""Stand-ins for the tools of clusters: they note how they were called, and keep what was made."""

from __future__ import annotations

import dataclasses
import os
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]

VERBS = ("describe", "delete", "create", "scp", "ssh", "squeue", "sbatch", "scancel", "requeue")

NOTE = """#!/bin/bash
printf '%q ' "$(basename "$0")" "$@" >> HERE/calls
echo >> HERE/calls
"""
JOB = """
end=$(head -n 1 HERE/ends 2>/dev/null)
sed -i 1d HERE/ends 2>/dev/null
[ "$end" != preempted ] || { echo PREEMPTED > HERE/state; exit 255; }
exit "${end:-0}"
"""
TOOLS = {
    "gcloud": NOTE
    + """
case " $* " in
  *" describe "*) cat HERE/state ;;
  *" create "*) echo READY > HERE/state ;;
  *" delete "*) rm HERE/state ;;
  *process.sh*) """
    + JOB
    + """;;
esac
""",
    "kubectl": NOTE + "cat > HERE/state\n",
    "squeue": NOTE + "cat HERE/state 2>/dev/null || true\n",
    "sbatch": NOTE + "echo 17 > HERE/state\n",
    "scancel": NOTE + "rm HERE/state\n",
    "scontrol": NOTE,
    "srun": "#!/bin/bash\n" + JOB,
    "sleep": "#!/bin/bash\n",  # there is no cluster to wait for
    "env": "#!/bin/bash\n",  # nor a virtual environment to make
}
"""Scripts; HERE is the folder with `calls`, with `state`, what there is on the cluster, and with
`ends`, how starts of a job end: exit codes, or `preempted`."""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A cluster in a folder."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> Cluster:
        """A cluster with nothing on it."""
        (folder / "bin").mkdir()
        for name, script in TOOLS.items():
            tool = folder / "bin" / name
            tool.write_text(script.replace("HERE", str(folder)), "utf-8")
            tool.chmod(0o755)
        return cls(folder)

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def ends(self, *ends: int | str) -> None:
        """How the next starts of a job end; those after them end well."""
        (self.folder / "ends").write_text("".join(f"{end}\n" for end in ends), "utf-8")

    def calls(self) -> list[list[str]]:
        """The words of every call since the last look."""
        file = self.folder / "calls"
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [shlex.split(line) for line in lines]

    def verbs(self) -> list[str]:
        """What was done since the last look."""
        return [next(word for word in call if word in VERBS) for call in self.calls()]


def launch(
    name: str, *arguments: str, cluster: Cluster | None = None, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Runs a script of launch/, on a cluster where one is given."""
    if cluster:
        settings["PATH"] = f"{cluster.folder / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        ["/bin/bash", str(ROOT / "launch" / f"{name}.sh"), *arguments],
        capture_output=True,
        text=True,
        env=os.environ | settings,
        timeout=120,
    )
