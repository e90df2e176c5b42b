from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorboard_torchexplorer import events, history
from tensorboard_torchexplorer.events import NewerVersionError
from tensorboard_torchexplorer.history import Infos, Key, Point, normalised, thinned, timeline
from tensorboard_torchexplorer.schema import Fault, StepInfo

STEPS = st.lists(st.integers(0, 20), max_size=40)


def info(step: int, session: str = "one", **other) -> StepInfo:
    values = {"wall": 100.0 + step, "time": None, "forwards": 1, "ran": [], "scale": None, "skipped": False}
    return StepInfo(step=step, session=session, **{"dropped": 0, **values, **other})


def point(step: int, wall: float, session: str = "one", **other) -> Point:
    return Point(step, wall, events.encode_info(info(step, session, **other)))


class TestNormalised:
    @given(STEPS)
    def test_c73_a_point_stays_unless_a_later_one_is_at_or_before_its_step(self, steps):
        points = [Point(step, float(at), b"") for at, step in enumerate(steps)]

        expected = [
            p for at, p in enumerate(points) if all(later.step > p.step for later in points[at + 1 :])
        ]

        assert normalised(points) == expected

    @given(STEPS)
    def test_what_the_data_server_already_cleaned_stays_as_it_is(self, steps):
        once = normalised(Point(step, float(at), b"") for at, step in enumerate(steps))

        assert normalised(once) == once


class TestTimeline:
    def test_c73_a_resumed_run_is_one_history_with_the_restart_marked(self):
        first = [point(step, step) for step in range(0, 101, 10)]
        second = [point(step, 1000 + step, "two") for step in range(50, 121, 10)]

        found = timeline({"train": first + second})

        assert found.columns == list(range(0, 121, 10))
        assert found.restarts == [50]
        assert [found.infos["train"][step].session for step in (40, 50)] == ["one", "two"]
        assert found.keys["train"][50] == Key(50, 1050.0)

    def test_evaluations_that_a_restart_undid_are_gone(self):
        train = [point(step, step) for step in range(10)] + [
            point(step, 100 + step, "two") for step in (5, 6)
        ]
        evaluations = [point(step, step + 0.5) for step in (0, 4, 8)]

        found = timeline({"train": train, "eval": evaluations})

        assert list(found.infos["eval"]) == [0, 4]
        assert found.columns == [0, 1, 2, 3, 4, 5, 6]

    def test_evaluations_after_the_restart_stay(self):
        train = [point(0, 0), point(5, 5), point(3, 10, "two")]
        evaluations = [point(5, 5.5), point(4, 12, "two")]

        found = timeline({"train": train, "eval": evaluations})

        assert list(found.infos["eval"]) == [4]

    @pytest.mark.parametrize("logged_first", ["train", "eval"])
    def test_c73_a_process_undoes_nothing_of_its_own(self, logged_first):
        """Whichever phase it logs first, at the step where the other goes on as well."""
        at = {"train": 20.0, "eval": 21.0} if logged_first == "train" else {"train": 21.0, "eval": 20.0}
        train = [point(step, step) for step in range(10)] + [point(5, at["train"], "two")]
        evaluations = [point(0, 0.5), point(8, 8.5), point(5, at["eval"], "two")]

        found = timeline({"train": train, "eval": evaluations})

        assert list(found.infos["train"]) == [0, 1, 2, 3, 4, 5]
        assert list(found.infos["eval"]) == [0, 5]
        assert found.restarts == [5]

    @pytest.mark.parametrize("step", [0, 4, 9, 20])
    def test_a_process_that_only_evaluates_an_old_step_undoes_nothing(self, step):
        """TensorBoard alone forgets what was evaluated there and later; it is no restart either."""
        train = [point(step, step) for step in range(10)]
        evaluations = [point(0, 0.5), point(8, 8.5), point(step, 100, "two")]

        found = timeline({"train": train, "eval": evaluations})

        assert list(found.infos["train"]) == list(range(10))
        assert list(found.infos["eval"]) == [s for s in (0, 8) if s < step] + [step]
        assert found.restarts == []
        assert [session.name for session in found.sessions] == ["one"]
        assert found.evaluations == [("two", step, step)]

    def test_it_is_a_restart_once_it_trains(self):
        train = [point(step, step) for step in range(10)] + [point(6, 101, "two")]

        found = timeline({"train": train, "eval": [point(4, 100, "two")]})

        assert list(found.infos["train"]) == [0, 1, 2, 3, 4, 5, 6]
        assert (found.restarts, found.evaluations) == ([6], [])

    def test_the_last_step_of_a_process_may_be_an_evaluation(self):
        found = timeline({"train": [point(0, 0), point(5, 5)], "eval": [point(2, 2.5), point(7, 8)]})

        assert found.sessions == [("one", 0, 7)]

    def test_a_restart_undoes_what_was_evaluated_of_the_old_training(self):
        train = [point(0, 0), point(5, 5), point(3, 10, "three")]

        found = timeline({"train": train, "eval": [point(4, 7, "two")]})

        assert (found.columns, found.restarts) == ([0, 3], [3])

    def test_of_a_model_that_nobody_trains_each_process_is_a_session(self):
        found = timeline({"eval": [point(0, 0), point(3, 9, "two")]})

        assert ([s.name for s in found.sessions], found.evaluations) == (["one", "two"], [])

    def test_two_phases_at_one_step_are_one_column(self):
        found = timeline({"train": [point(0, 0), point(2, 2)], "eval": [point(2, 2.5), point(3, 3)]})

        assert found.columns == [0, 2, 3]
        assert found.restarts == []
        assert found.info(2).wall == 102.0

    def test_a_damaged_record_is_left_out_and_named(self):
        found = timeline({"train": [point(0, 0), Point(1, 1.0, b"damaged"), point(2, 2)]})

        assert found.columns == [0, 2]
        (problem,) = found.problems
        assert (problem.place, problem.path) == ("train step 1", "")
        assert problem in history.faults(found)

    def test_a_newer_record_is_not_skipped_over(self):
        newer = Point(1, 1.0, events.encode_info(StepInfo(**vars(info(1)) | {"version": 2})))

        with pytest.raises(NewerVersionError):
            timeline({"train": [point(0, 0), newer]})

    def test_nothing_logged_is_an_empty_history(self):
        found = timeline({})

        assert (found.columns, found.sessions, found.restarts, found.main) == ([], [], [], "train")

    def test_a_model_that_was_only_evaluated_is_shown_by_that(self):
        assert timeline({"eval": [point(0, 0)]}).main == "eval"


class TestInfos:
    """Decoding as the backend does it, with `Infos`."""

    def test_equal_parts_are_kept_once(self):
        faults = [Fault("a", "b", str(number)) for number in range(50)]
        points = [point(step, step, ran=[[0, 4], [6, 2]], faults=faults) for step in range(300)]
        infos = Infos()

        found = timeline({"train": points}, infos).infos["train"]

        assert len(found) == 300
        assert found[7] == info(7, ran=[[0, 4], [6, 2]], faults=faults)
        assert len({id(one.ran) for one in found.values()}) == 1
        assert len({id(fault) for one in found.values() for fault in one.faults}) == 50
        assert infos.bytes < 300 * 1200 + 50 * 300

    def test_a_file_cannot_take_all_memory(self):
        """Each record a few hundred bytes, and as many different ranges as they can hold."""
        points = [
            point(step, step, ran=[[2 * at + step % 7, 1] for at in range(40_000 - step)])
            for step in range(9)
        ]
        infos = Infos(limit=1 << 20)

        found = timeline({"train": points}, infos)

        assert list(found.infos["train"]) == [0, 1, 2, 3]
        assert infos.bytes < 2 << 20
        assert [problem.place for problem in found.problems] == [f"train step {step}" for step in range(4, 9)]
        assert "take more than 1048576 bytes of memory" in found.problems[0].error

    def test_what_is_gone_takes_no_room(self):
        infos = Infos()
        points = [point(step, step) for step in range(100)]
        timeline({"train": points}, infos)
        full = infos.bytes

        infos.forget_others({Key(p.step, p.wall) for p in points[:50]})

        assert infos.bytes < 0.6 * full
        assert timeline({"train": points}, infos).columns == list(range(100))
        assert infos.bytes == full


class TestThinned:
    @given(st.lists(st.integers(0, 10**9), unique=True, max_size=300).map(sorted), st.integers(2, 100))
    def test_c71_first_and_last_are_kept_and_gaps_are_even(self, columns, limit):
        found = thinned(columns, limit)

        assert len(found) == min(limit, len(columns))
        assert found[:1] + found[-1:] == columns[:1] + columns[-1:]
        gaps = [columns.index(b) - columns.index(a) for a, b in pairwise(found)]
        assert max(gaps, default=0) - min(gaps, default=0) <= 1


def test_each_fault_is_listed_once_and_not_without_end():
    same = Fault("a", "b", "c")
    points = [point(step, step, faults=[same, Fault("a", "b", str(step))]) for step in range(300)]

    found = history.faults(timeline({"train": points}))

    assert len(found) == history.MAX_FAULTS == len(set(found))
    assert found[0] == same


def test_lost_records_of_all_processes_are_added():
    points = [point(0, 0, dropped=2), point(1, 1, dropped=5), point(2, 2, "two", dropped=1)]

    assert history.dropped(timeline({"train": points, "eval": [point(1, 1.5, dropped=4)]})) == 6
