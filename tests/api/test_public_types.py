"""Everything that a public call takes and returns has a type, a name in `wm` and a description."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import pytest

import watersmeet as wm

FUNCTIONS = [getattr(wm, name) for name in wm.__all__ if isinstance(getattr(wm, name), FunctionType)]
CLASSES = [getattr(wm, name) for name in wm.__all__ if inspect.isclass(getattr(wm, name))]

#: Replaced functions: what they return has no public name any more.
REPLACED = {wm.keep_up}

#: JSON values, which have no other type.
JSON = {"to_dict", "from_dict"}

#: Classes of other packages and of Python.
FOREIGN = ("pa.", "pyspark.", "DataFrame", "SparkSession", "StreamingQuery", "DataStreamWriter")


def _list_methods(owner: type) -> Iterator[Callable[..., Any]]:
    for name, member in vars(owner).items():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if isinstance(function, FunctionType) and not name.startswith("_") and name not in JSON:
            yield function


METHODS = [method for owner in CLASSES for method in _list_methods(owner)]


@pytest.mark.parametrize("function", [*FUNCTIONS, *METHODS], ids=lambda function: function.__qualname__)
def test_no_public_annotation_is_any(function: Callable[..., Any]) -> None:
    signature = inspect.signature(function)
    annotations = {name: each.annotation for name, each in signature.parameters.items() if name not in ("self", "cls")}
    for name, annotation in {**annotations, "return": signature.return_annotation}.items():
        assert annotation is not inspect.Signature.empty, name
        assert not re.search(r"\bAny\b", str(annotation)), f"{name}: {annotation}"


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_every_class_that_a_function_returns_is_public(function: Callable[..., Any]) -> None:
    if function in REPLACED:
        return
    returned = str(inspect.signature(function).return_annotation)
    for name in re.findall(r"[\w.]+", returned):
        if name in ("None", "str", "bool") or name.startswith(FOREIGN):
            continue
        public = [each for each in CLASSES if name == each.__name__]
        assert public, f"{returned} is not exported"


def test_every_public_class_function_and_method_has_a_description() -> None:
    for each in (*CLASSES, *FUNCTIONS):
        assert inspect.getdoc(each), each
    for owner in (wm.Job, wm.RunningQuery, wm.Explanation):
        for method in _list_methods(owner):
            assert inspect.getdoc(method), method


def test_the_attributes_that_results_are_made_of_are_public() -> None:
    about = wm.explain("SELECT k FROM a [RANGE 1 SECOND]", {"a": wm.stats(rate=1, distinct={"k": 2})})
    for value in (about, about.plan, about.chosen, about.chosen.cost, about.chosen.cost.operators[0], about.budget):
        assert type(value) in CLASSES


def test_all_options_of_a_query_have_one_spelling_and_are_given_by_name() -> None:
    for function in (wm.explain, wm.collect, wm.run, wm.job, wm.on_spark, wm.start):
        parameters = inspect.signature(function).parameters
        assert list(parameters)[:2] == ["query", "streams"]
        options = {name: each for name, each in parameters.items() if name not in ("query", "streams")}
        assert {"plan", "budget", "shed", "stats"} <= options.keys()
        assert {each.kind for each in options.values()} == {inspect.Parameter.KEYWORD_ONLY}


def test_all_public_names_load_without_spark() -> None:
    program = "import sys; from watersmeet import *; print([name for name in sys.modules if name == 'pyspark'])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
