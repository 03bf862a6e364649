"""In the place of the package of this name, where PYTHONPATH begins with this directory: `format("oncelog")` that dies.

So a program that knows nothing of tests is killed at a named point. The file that ONCELOG_TEST_DEATH names has the
fields of `dying.Death` in JSON, and `topic`: who writes to another one lives on.
"""

from __future__ import annotations

import json
import os
from collections.abc import MutableMapping
from pathlib import Path

from dying import Death, DyingDataSource

from oncelog_pipeline.spark.data_source import NAME


class DefaultSource(DyingDataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        told = json.loads(Path(os.environ["ONCELOG_TEST_DEATH"]).read_text())
        if told.pop("topic") == options.get("topic"):
            self.death = Death(**told)

    @classmethod
    def name(cls) -> str:
        return NAME
