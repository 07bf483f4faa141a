"""Sends OpenLineage events by the project's own client, which its own variables (OPENLINEAGE_*) configure."""

import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID, uuid5

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from openlineage.client import OpenLineageClient
from openlineage.client import event_v2
from openlineage.client.facet_v2 import (
    error_message_run,
    job_dependencies_run,
    job_type_job,
    nominal_time_run,
    parent_run,
    processing_engine_run,
)

from node.state.times import rfc3339
from node.tracing.export_thread import NotExported
from node.tracing.lineage import LineageRecord
from node.tracing.spans import ParentRun
from tasks.datasets import Dataset, Datasets
from tasks.version import version

_RUNS: Final = UUID("5c1f3e0e-2f2a-5d0e-8a57-0f6a3c1f2b9d")
"""The namespace of the ids of runs (UUIDv5)."""

_EVENTS: Final = {state.value: state for state in event_v2.RunState}

DatasetsOf = Callable[[str, Mapping[str, Any], str], Datasets]
"""Returns the datasets of a run from its kind, its params and the name under which it keeps what it leaves."""


class NoReceiver(Exception):
    """Nothing says where events go."""


def lineage_run_id(cluster: str, run_id: str) -> str:
    """Return the UUID of a run: a function of the cluster's and the run's ids, the same on every member."""
    return str(uuid5(_RUNS, f"{cluster}/{run_id}"))


class LineageClient:
    """Sends events. Implements `node.tracing.export_thread.ExportClient`.

    Raises `NoReceiver` if the variables do not say where to send them, and any exception of the client if one of them
    has no valid value.
    """

    def __init__(self, datasets_of: DatasetsOf) -> None:
        for name, level in (("openlineage", logging.ERROR), ("urllib3.connectionpool", logging.ERROR)):
            logging.getLogger(name).setLevel(level)
        self._namespace = os.environ.get("OPENLINEAGE_NAMESPACE", "").strip()
        self._producer = f"urn:rota:{version()}"
        self._datasets_of = datasets_of
        self._client = OpenLineageClient()
        if self._client.transport.kind == "console":
            raise NoReceiver("nothing says where events go: set OPENLINEAGE_URL, or OPENLINEAGE_CONFIG to a file")
        _ = self._client.config  # read now, while the variables are there

    def send(self, records: Sequence[LineageRecord], /) -> None:
        """Send events, one by one. Raises `NotExported` at the first that is not taken."""
        for record in records:
            event = self._event(record)
            try:
                self._client.emit(event)
            except Exception as error:  # noqa: BLE001 - each transport raises errors of its own
                raise NotExported(f"{type(error).__name__}: {error}") from None

    def _event(self, record: LineageRecord) -> event_v2.RunEvent:
        namespace = self._namespace or f"rota.{record.cluster}"
        datasets = self._datasets_of(record.kind, record.params, record.lineage)
        return event_v2.RunEvent(
            eventTime=rfc3339(record.at_us),
            producer=self._producer,
            eventType=_EVENTS[record.event],
            run=event_v2.Run(lineage_run_id(record.cluster, record.run_id), self._run_facets(record, namespace)),
            job=event_v2.Job(
                namespace,
                record.task,
                {
                    "jobType": job_type_job.JobTypeJobFacet(
                        processingType="STREAMING" if record.continuous else "BATCH",
                        integration="ROTA",
                        jobType=record.kind.upper(),
                        producer=self._producer,
                    )
                },
            ),
            inputs=[event_v2.InputDataset(*each) for each in _once(datasets.inputs)],
            outputs=[event_v2.OutputDataset(*each) for each in _once(datasets.outputs)],
        )

    def _run_facets(self, record: LineageRecord, namespace: str) -> dict[str, Any]:
        producer = self._producer
        facets: dict[str, Any] = {
            "nominalTime": nominal_time_run.NominalTimeRunFacet(rfc3339(record.nominal_us), producer=producer),
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
                version=version(), name="Rota", producer=producer
            ),
        }
        if record.error is not None:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
                record.error, programmingLanguage="PYTHON", producer=producer
            )
        if record.parents:
            last = record.parents[-1]
            facets["parent"] = parent_run.ParentRunFacet(
                run=parent_run.Run(lineage_run_id(record.cluster, last.run_id), facets=None),
                job=parent_run.Job(namespace, last.task, facets=None),
                producer=producer,
            )
            facets["jobDependencies"] = job_dependencies_run.JobDependenciesRunFacet(
                upstream=[_dependency(one, record.cluster, namespace) for one in record.parents], producer=producer
            )
        return facets


def _dependency(one: ParentRun, cluster: str, namespace: str) -> job_dependencies_run.JobDependency:
    return job_dependencies_run.JobDependency(
        job=job_dependencies_run.JobIdentifier(namespace, one.task),
        run=job_dependencies_run.RunIdentifier(lineage_run_id(cluster, one.run_id)),
        dependency_type="DIRECT_INVOCATION",
        sequence_trigger_rule="FINISH_TO_START",
    )


def _once(datasets: Sequence[Dataset]) -> list[Dataset]:
    return list(dict.fromkeys(datasets))
