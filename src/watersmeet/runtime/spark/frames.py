"""Arrow batches as pandas frames that PySpark hands on as they are.

What leaves a stateful operator of PySpark has to be a pandas frame, and PySpark makes Python values of every list
before it makes an Arrow batch of the frame again. Columns that are Arrow's to begin with need neither.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa


class _ArrowSeries(pd.Series):
    """A column of Arrow's, which no conversion of values is applied to."""

    @property
    def _constructor(self) -> type[pd.Series]:
        return _ArrowSeries

    def apply(self, *_: Any, **__: Any) -> Any:
        return self


class _ArrowFrame(pd.DataFrame):
    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return _ArrowFrame

    @property
    def _constructor_sliced(self) -> type[pd.Series]:
        return _ArrowSeries


def arrow_frame(batch: pa.RecordBatch) -> pd.DataFrame:
    """The batch as a frame over the same memory."""
    columns = {
        name: pd.arrays.ArrowExtensionArray(column)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    return _ArrowFrame(columns, copy=False)
