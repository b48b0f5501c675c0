"""Every statistic of the vocabulary has its place in the log, in the index and on the pages."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from stepscope.tracer.schema.statistics import COUNTS, NUMBERS, STATISTICS, Values
from stepscope.viewer.ingest.damage import Damage, RecordPlace
from stepscope.viewer.ingest.recorder.value_batch import batch_of
from stepscope.viewer.ingest.spill import Spill
from stepscope.viewer.store.index import SCHEMA
from stepscope.viewer.values.filters import CHOICES, VOCABULARY
from stepscope.viewer.values.rows import HEALTH, HEALTH_SIGNS
from tests.logs.value_logs import FINE, values_of

FIXTURE = Path(__file__).parents[2] / "js" / "vocabulary.json"


def test_scripts_are_tested_with_the_vocabulary_of_the_pages() -> None:
    assert json.loads(FIXTURE.read_text("utf-8")) == VOCABULARY


def test_the_record_and_the_tables_have_every_statistic() -> None:
    recorded = {name for name, one in STATISTICS.items() if one.is_recorded}
    assert recorded <= {field.name for field in fields(Values)}
    with duckdb.connect() as index:
        index.execute(SCHEMA)
        for table in ("value_rows", "input_rows"):
            columns = {name: kind for name, kind, *_ in index.execute(f"DESCRIBE {table}").fetchall()}
            assert {columns[name] for name in COUNTS} == {"BIGINT"}
            assert {columns[name] for name in NUMBERS} == {"DOUBLE"}


def test_classes_of_health() -> None:
    assert {one.health for one in STATISTICS.values()} - {None} <= set(HEALTH)
    assert list(HEALTH_SIGNS) == list(HEALTH)
    assert sorted(CHOICES) == sorted(STATISTICS)


def test_a_statistic_that_an_older_log_lacks_is_unknown() -> None:
    lacking: Any = {"subnormal": None, "std": None}
    damage = Damage()
    batch = batch_of(replace(values_of([0], [0], [FINE, FINE]), **lacking), RecordPlace(1, 0), damage, Spill())
    assert batch.sparse["subnormal"] is None
    assert np.isnan(batch.floats["std"]()).all()
    assert batch.sparse["zero"] is not None
    assert not damage.counts
