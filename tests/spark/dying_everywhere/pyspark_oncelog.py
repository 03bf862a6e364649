"""Makes `format("oncelog")` die at a named point, for a program that is not written for tests.

This module hides oncelog's package of the same name if PYTHONPATH begins with this directory. The file named by the
variable ONCELOG_TEST_DEATH has the fields of `dying.Death` in JSON, and `topic`: only the query that writes to that
topic dies.
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
