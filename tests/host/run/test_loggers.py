"""What loggers are told of rows and evaluations, and that a resumed run is the same run to them."""

import importlib.util
import sys
from types import SimpleNamespace

from jaxrl.host.run.loggers import Logger
from jaxrl.host.run.run_folder import RunFolder


class Recorded:
    """In the place of wandb: what was logged, by run."""

    def __init__(self):
        self.runs, self.calls = {}, []

    def init(self, id=None, **settings):
        id = id or f"run{len(self.runs)}"
        self.calls.append(settings)
        rows = self.runs.setdefault(id, [])
        return SimpleNamespace(id=id, log=lambda row, step: rows.append(row), finish=lambda: None)


def test_evaluations_reach_loggers_and_a_resumed_run_is_the_same_one(tmp_path, monkeypatch):
    fake = Recorded()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    folder = RunFolder(tmp_path)
    for _ in range(2):
        logger = Logger(folder, ("wandb",), {})
        logger.write({"update": 1, "step": 8, "loss": [1.0, 3.0], "episode_return": [None, None]})
        logger.evaluated(
            {"update": 1, "step": 8, "return": [1.0, 2.0], "episodes": 4, "level_return": 0.5, "levels": []}
        )
        logger.close()
    assert len(fake.runs) == 1 and [call["project"] for call in fake.calls] == ["mine"] * 2
    row, judged = fake.runs["run0"][:2]
    assert row == {"update": 1, "step": 8, "loss": 2.0}
    assert judged == {
        "step": 8,
        "evaluation/return": 1.5,
        "evaluation/return/0": 1.0,
        "evaluation/return/1": 2.0,
        "evaluation/level_return": 0.5,
    }
    assert folder.table.read_text() == "update,step,loss,episode_return\n1,8,2.0,\n1,8,2.0,\n"
