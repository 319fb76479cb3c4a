"""DDP and FSDP2 in real processes; what they check is in distributed_checks.py."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch.distributed as dist
import torch.multiprocessing as mp

from tests.support import distributed_checks

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this torch has no torch.distributed")


@pytest.mark.parametrize("world", [pytest.param(2, marks=pytest.mark.slow), 3])  # three have uneven shards
def test_distributed_training_equals_single_process_training(world: int, tmp_path: Path) -> None:
    spawn(distributed_checks.run, world, tmp_path)


@pytest.mark.slow
def test_fsdp_with_tensor_parallelism_equals_single_process_training(tmp_path: Path) -> None:
    spawn(distributed_checks.run_on_a_grid, 4, tmp_path)


def spawn(check: Callable[[int, int, str], None], world: int, folder: Path) -> None:
    """Run a check in that many processes, each of which must get to its end."""
    mp.spawn(check, args=(world, str(folder / "meeting")), nprocs=world)
    finished = sorted(path.name for path in folder.glob("meeting.*"))
    assert finished == [f"meeting.{rank}" for rank in range(world)]
