"""Whether this processor runs what it announces.

Some virtual machines announce matrix instructions for bf16 (AMX) and do not run them; a product then ends
the process, with no exception that could be caught. So it is tried in a process that may end.
"""

from __future__ import annotations

import functools
import subprocess
import sys

from privit.errors import RequestError

TRIAL = "import torch; torch.nn.Linear(32, 32).bfloat16()(torch.ones(4, 8, 32).bfloat16())"
ISA = "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"


def check_bfloat16() -> None:
    """A `RequestError` if a product in bf16 would end this process."""
    if _code_of_a_trial() < 0:
        raise RequestError(
            "a product in bf16 ends the process here: the processor announces instructions it does not run",
            f"set {ISA} in the environment, or --set mixed_precision=no",
        )


@functools.cache
def _code_of_a_trial() -> int:
    return subprocess.run([sys.executable, "-c", TRIAL], stderr=subprocess.DEVNULL, check=False).returncode
