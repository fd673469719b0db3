# SPDX-License-Identifier: Apache-2.0
"""The pages that the lab writes, in a real browser."""

import browser
import pytest
from weft.profile import page
from weft.profile.operators import Operator
from weft.profile.result import Result
from weft.profile.samples import Frame, Sample, by_function, by_library

MAIN = Frame("main", "program")
WORK = Frame("work<int> & </script><b>", "libwork.so.1")
REST = Frame("rest", "libwork.so.1")


def result():
    samples = [
        Sample(7, 7, 0.1 * i, 0.1, (WORK if i < 6 else REST, MAIN), "program") for i in range(10)
    ]
    return Result(
        ["program", "--some", "<argument>"],
        ["perf"],
        seconds=1.0,
        has_stacks=True,
        samples=samples,
        labels={7: "rank 0 (program)"},
        libraries=by_library(samples),
        functions=by_function(samples),
        operators=[Operator("weft:all_reduce", 3, 0.5, 0.5, 4096, {0})],
        notes=["a note with <angles>"],
    )


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "profile.html"
    path.write_text(page.render(result()))
    return path


def test_the_flame_graph_has_a_box_for_each_call(written):
    seen = browser.check(written)
    assert seen.count("rect") == 4  # all, main, work and rest
    assert "rest (libwork.so.1): 0.400 s, 40.00 %" in seen.dom
    assert seen.count("table") == 3


def test_a_search_marks_what_it_finds_and_sums_it_up(written):
    seen = browser.check(written, "search=LIBWORK")
    assert seen.dom.count('class="hit"') == 2
    assert "1.000 s, 100.00 % in 2 places" in seen.dom


def test_zooming_leaves_the_callers_and_the_box_itself(written):
    seen = browser.check(written, "zoom=rest")
    assert seen.count("rect") == 3
    assert "work&lt;int&gt;" not in seen.dom.split("<table>")[0].split("</script>")[-1]


def test_a_broken_page_is_noticed(tmp_path):
    path = tmp_path / "broken.html"
    path.write_text("<script>missing.call()</script><img src='http://example.invalid/a.png'>")
    seen = browser.load(path.as_uri())
    assert any("missing is not defined" in line for line in seen.console)
    assert seen.outside == ["http://example.invalid/a.png"]
