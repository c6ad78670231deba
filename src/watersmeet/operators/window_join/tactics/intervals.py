"""When joins are evaluated and when expired rows leave: two knobs, and the one restriction the first paper puts between
them.
"""

from __future__ import annotations

from watersmeet.algebra.plan import Plan
from watersmeet.operators.window_join.tactics.base import refuse


def check_eager(plan: Plan) -> None:
    """An eager join evaluates at every arrival. Rows may be expired eagerly or lazily: every loop checks times anyway."""
    if plan.evaluate_us:
        raise refuse(
            plan, "it evaluates at every arrival", hint="leave the evaluation interval out, or pin the lazy algorithm"
        )


def check_lazy(plan: Plan) -> None:
    """A lazy join must expire lazily, at most as often as it evaluates.

    A row may be expired by now and yet have been valid when a row that is not joined yet arrived.

    References: Golab, Özsu, section 3.3.
    """
    if not plan.evaluate_us:
        raise refuse(plan, "a lazy join needs an evaluation interval", hint='for example evaluate="5 seconds"')
    if not plan.expire_us:
        raise refuse(
            plan,
            "eager expiration would drop rows that were still valid when a row waiting for evaluation arrived",
            hint="give it an expiration interval of at least the evaluation interval",
        )
    if plan.expire_us < plan.evaluate_us:
        raise refuse(
            plan,
            f"it expires every {plan.expire_us} µs but evaluates only every {plan.evaluate_us} µs; expiration may come at most as often",
            hint="make the expiration interval at least as long as the evaluation interval",
        )
