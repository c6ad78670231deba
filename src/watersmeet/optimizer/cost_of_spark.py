"""What Spark takes on top of the meet: rows are packed, shuffled, kept in its state store and handed out; every micro-batch has a price."""

from __future__ import annotations

from dataclasses import replace

from watersmeet.cost.profile import Profile
from watersmeet.operators.meet.config import MeetConfig
from watersmeet.optimizer.costing import Costed
from watersmeet.optimizer.estimates import Workload
from watersmeet.optimizer.parts import Part


def on_spark(config: MeetConfig, workload: Workload, profile: Profile, each: Costed, read: Workload | None = None) -> Costed:
    """The plan with Spark's part of the cost; the same for every plan, so that it changes no choice.

    Where rows are dropped, `workload` has what is left and `read` what was there: all of it is looked at by those who pack.
    """
    spark = profile.spark
    arriving = sum((read or workload).inputs[i].rows_per_s.value for i in config.streams)
    shuffled = sum(workload.inputs[i].rows_per_s.value for i in config.streams)
    kept = sum(workload.inputs[i].kept_per_s.value for i in config.streams)
    out, batches = each.cost.rows_out_per_s, 1 / workload.arriving.batch_s
    parts = (
        Part("spark: pack", arriving * spark.pack_s, arriving),
        Part("spark: shuffle", shuffled * spark.shuffle_s, shuffled),
        Part("spark: state", kept * spark.state_s, kept),
        Part("spark: hand out", out * spark.out_s, out),
        Part("spark: micro-batches", batches * spark.batch_s, batches),
    )
    return Costed(each.plan, replace(each.cost, parts=(*each.cost.parts, *parts)))
