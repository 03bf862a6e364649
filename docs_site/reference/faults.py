"""The tables of docs/testing.md: the faults that can be set, and the violations that a verdict may list."""

from __future__ import annotations

from docs_site.reference.markdown import table
from oncelog_broker.fail_control.catalogue import CATALOGUE, STEPS, Point
from oncelog_testing.history.violation import Kind


def points() -> str:
    steps = [[f"`{step.name}`", step.what, ", ".join(step.actions), _filters(step)] for step in STEPS]
    apis = []
    for name in (name.removesuffix(".request") for name in CATALOGUE if name.endswith(".request")):
        request, answer = CATALOGUE[f"{name}.request"], CATALOGUE[f"{name}.answer"]
        assert request.filters == answer.filters, name
        apis.append([name, ", ".join(request.actions), ", ".join(answer.actions), _filters(request)])
    return "\n".join(
        [
            table(["Step", "What", "can", "knows"], steps),
            "Each API has two points, for example `EndTxn.request` before the broker handles the request, and "
            "`EndTxn.answer` before it sends the response.\n",
            table(["API", "faults before the request", "faults before the response", "filters"], apis),
        ]
    )


def _filters(point: Point) -> str:
    return ", ".join(f"`{name}`" for name in point.filters)


def kinds() -> str:
    return table(["Kind", "Meaning"], [[f"`{kind.name}`", kind.value] for kind in Kind])
