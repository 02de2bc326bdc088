"""The back-end of Django's tasks: what the framework promises of every one, and what is ours."""

from datetime import datetime, timedelta
from typing import Any
from unittest import mock

import django
from django.db import transaction
from django.test import SimpleTestCase, TransactionTestCase, override_settings
from django.utils import timezone

from queuey_sync import Envelope, Fatal, JobContext, PublishRefused, correlated
from queuey_sync.contrib.django import current_app
from queuey_sync.contrib.django.task_jobs import job_class, run_task
from queuey_sync.contrib.django.tasks import QueueyBackend
from things import tasks
from things.queues import Queues
from things.tests.doubles import in_memory, inline, marks, published, refused

if django.VERSION >= (6, 0):
    from django.tasks import TaskResultStatus, default_task_backend, task, task_backends
    from django.tasks.exceptions import InvalidTask
    from django.tasks.signals import task_enqueued, task_finished, task_started

    LOGGER = "django.tasks"
else:
    from django_tasks import TaskResultStatus, default_task_backend, task, task_backends
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.signals import task_enqueued, task_finished, task_started

    LOGGER = "django_tasks"


@in_memory
class Framework(TransactionTestCase):
    """What Django's own tests ask of a back-end, whichever it is."""

    def test_the_setting_names_it(self) -> None:
        """An alias gives an instance of it."""
        assert isinstance(task_backends["default"], QueueyBackend)
        assert default_task_backend == task_backends["default"]

    def test_flags(self) -> None:
        """It says what it can do."""
        backend = task_backends["default"]
        assert backend.supports_defer
        assert backend.supports_priority
        assert backend.supports_async_task
        assert not backend.supports_get_result

    def test_enqueueing_gives_a_result_that_is_ready(self) -> None:
        """With the arguments, plain functions and coroutines alike."""
        for one in (tasks.note, tasks.note_async):
            with self.subTest(one), published() as taken:
                result = one.enqueue(1, two=3)
                assert result.status == TaskResultStatus.READY
                assert not result.is_finished
                assert result.started_at is result.finished_at is result.last_attempted_at is None
                assert timezone.now() - result.enqueued_at < timedelta(seconds=10)
                assert (result.args, result.kwargs) == ([1], {"two": 3})
                assert (result.task, result.backend) == (one, "default")
                assert (result.errors, result.worker_ids, result.attempts) == ([], [], 0)
                with self.assertRaisesMessage(ValueError, "Task has not finished yet"):
                    _ = result.return_value
                assert [str(envelope.job_id) for envelope, _ in taken] == [result.id]

    async def test_enqueueing_from_a_coroutine(self) -> None:
        """The same."""
        with published() as taken:
            result = await tasks.note.aenqueue("a")
        assert (result.status, len(taken)) == (TaskResultStatus.READY, 1)

    def test_arguments_that_are_no_json_are_refused(self) -> None:
        """Before anything is published."""
        with published() as taken, self.assertRaisesMessage(TypeError, "Unsupported type"):
            tasks.note.enqueue(datetime.now())  # noqa: DTZ005 - of no interest
        assert taken == []

    def test_results_are_not_kept(self) -> None:
        """To ask for one is an error, as the flag says."""
        with published():
            result = tasks.note.enqueue()
        with self.assertRaises(NotImplementedError):
            default_task_backend.get_result(result.id)
        with self.assertRaises(NotImplementedError):
            result.refresh()

    def test_invalid_tasks_are_refused(self) -> None:
        """Those that the framework refuses, and a priority where there is none."""
        naive = datetime.now() + timedelta(hours=1)  # noqa: DTZ005 - that is what is wrong with it
        refusals: list[tuple[dict[str, Any], str]] = [
            ({"priority": 101}, "priority must be a whole number"),
            ({"priority": -101}, "priority must be a whole number"),
            ({"priority": 3.1}, "priority must be a whole number"),
            ({"queue_name": "nowhere"}, "Queue 'nowhere' is not valid"),
            ({"run_after": naive}, "run_after must be an aware datetime"),
            ({"queue_name": "flat", "priority": 1}, "no priorities"),
        ]
        for options, text in refusals:
            with self.subTest(options), self.assertRaisesMessage(InvalidTask, text):
                tasks.note.using(**options).enqueue()
        with self.assertRaisesMessage(InvalidTask, "module level"):
            task()(lambda: None)
        with self.assertRaisesMessage(InvalidTask, "first argument of 'context'"):
            task(takes_context=True)(tasks.no_task)

    def test_enqueueing_is_logged_and_sent(self) -> None:
        """Django's own logger says so, and its signal carries the result."""
        sent: list[Any] = []

        def receive(sender: object, task_result: Any, **_: object) -> None:
            sent.append((sender, task_result))

        task_enqueued.connect(receive)
        self.addCleanup(task_enqueued.disconnect, receive)
        with published(), self.assertLogs(LOGGER, "DEBUG") as logged:
            result = tasks.note.enqueue()
        assert sent == [(QueueyBackend, result)]
        assert result.id in logged.output[0]

    @override_settings(TASKS={})
    def test_without_the_setting_there_is_no_back_end(self) -> None:
        """A task that was declared before says so."""
        if django.VERSION >= (6, 0):
            with self.assertRaisesMessage(Exception, "doesn't exist"):
                tasks.note.enqueue()


@in_memory
class Publishing(TransactionTestCase):
    """How a task becomes a job."""

    def enqueued(self, one: Any, *args: Any) -> tuple[Envelope, Any]:
        """What is published for a task."""
        with published() as taken:
            one.enqueue(*args)
        (envelope,) = taken
        return envelope

    def test_queues_are_those_of_the_app(self) -> None:
        """With or without their prefix."""
        assert self.enqueued(tasks.note)[0].queue == "things.default"
        assert self.enqueued(tasks.note_on_flat, "x")[0].queue == "things.flat"

    def test_priorities_are_spread_over_the_levels(self) -> None:
        """In their order, the lowest at the bottom and the highest at the top."""
        levels = [
            self.enqueued(tasks.note.using(priority=priority))[0].priority
            for priority in (-100, -50, 0, 1, 50, 100)
        ]
        assert levels == [0, 2, 5, 5, 7, 10]

    def test_run_after_is_a_delay(self) -> None:
        """Counted from the moment of publishing; a time that is over is none."""
        later = timezone.now() + timedelta(hours=1)
        _, delay = self.enqueued(tasks.note.using(run_after=later))
        assert timedelta(minutes=59) < delay <= timedelta(hours=1)
        _, delay = self.enqueued(tasks.note.using(run_after=later - timedelta(hours=2)))
        assert delay == timedelta(0)
        assert self.enqueued(tasks.note)[1] is None

    def test_a_time_that_the_broker_cannot_wait_for_is_refused(self) -> None:
        """Rather than released early."""
        backend = current_app().backend()
        with mock.patch.object(type(backend), "longest_delay", timedelta(days=20)):
            later = tasks.note.using(run_after=timezone.now() + timedelta(days=21))
            with self.assertRaisesMessage(InvalidTask, "run_after"):
                later.enqueue()

    def test_the_correlation_id_goes_with_it(self) -> None:
        """As with any other job."""
        with correlated("request-7"):
            assert self.enqueued(tasks.note)[0].correlation_id == "request-7"

    def test_a_task_is_published_at_once_unless_the_option_says_on_commit(self) -> None:
        """As Django documents, the framework does not wait by itself."""
        with published() as taken:
            with transaction.atomic():
                tasks.note.enqueue()
                assert len(taken) == 1
                result = tasks.note.using(backend="on_commit").enqueue()
                assert len(taken) == 1
            assert str(taken[1][0].job_id) == result.id

    def test_a_refusal_is_raised_at_once_or_logged_after_the_commit(self) -> None:
        """And the signal does not say that the task was enqueued."""
        sent: list[Any] = []

        def receive(task_result: Any, **_: object) -> None:
            sent.append(task_result)

        task_enqueued.connect(receive)
        self.addCleanup(task_enqueued.disconnect, receive)
        with refused():
            with self.assertRaises(PublishRefused):
                tasks.note.enqueue()
            with self.assertLogs("queuey_sync", "ERROR") as logged, transaction.atomic():
                result = tasks.note.using(backend="on_commit").enqueue()
        assert result.id in logged.output[0]
        assert sent == []


@inline
class Running(SimpleTestCase):
    """How a job runs a task."""

    databases = ("default",)

    def setUp(self) -> None:
        """Forget what came before."""
        marks()
        self.finished: list[Any] = []
        self.started: list[Any] = []
        for signal, into in ((task_started, self.started), (task_finished, self.finished)):

            def receive(task_result: Any, into: list[Any] = into, **_: object) -> None:
                into.append((task_result.status, task_result.id))

            signal.connect(receive, weak=False)
            self.addCleanup(signal.disconnect, receive)

    def test_arguments_arrive(self) -> None:
        """Positional ones and those with names."""
        tasks.note.enqueue(1, [2, {"three": None}], four=4.5)
        assert marks() == ["note (1, [2, {'three': None}]) {'four': 4.5}"]

    def test_a_coroutine_runs_to_its_end(self) -> None:
        """In the thread of its slot."""
        tasks.note_async.enqueue("done")
        assert marks() == ["done"]

    def test_the_context_knows_the_job(self) -> None:
        """Its result has the id of the job, and counts its attempts."""
        tasks.note_context.enqueue()
        assert marks() == ["attempt 1 own id True"]

    def test_signals_tell_of_a_success(self) -> None:
        """One when it starts, one when it has ended."""
        result = tasks.note.enqueue()
        assert self.started == [(TaskResultStatus.RUNNING, result.id)]
        assert self.finished == [(TaskResultStatus.SUCCESSFUL, result.id)]

    def test_signals_tell_of_a_failure_with_its_error(self) -> None:
        """Only when no attempt is left; Django logs it."""
        errors: list[Any] = []

        def receive(task_result: Any, **_: object) -> None:
            errors.extend(task_result.errors)

        task_finished.connect(receive)
        self.addCleanup(task_finished.disconnect, receive)
        with self.assertLogs(LOGGER, "ERROR"), self.assertLogs("queuey_sync"):
            result = tasks.fail.enqueue()
        assert self.finished == [(TaskResultStatus.FAILED, result.id)]
        assert errors[0].exception_class is ValueError
        assert "no good" in errors[0].traceback

    def test_what_will_run_again_has_not_finished(self) -> None:
        """A deferral, and a failure with attempts left."""
        with self.assertLogs("queuey_sync"):
            tasks.put_off.enqueue()
        job = job_class(Queues.DEFAULT)("things.tasks.fail", [], {}, "default", "default", 0, None)
        with self.assertRaises(ValueError):
            run_task(job, JobContext(attempt=1, max_attempts=2))
        assert self.finished == []

    def test_only_tasks_run(self) -> None:
        """A message that names another function is given up on."""
        for path in ("things.tasks.no_task", "os.getcwd", "things.tasks.nothing", "nowhere.at.all"):
            with self.subTest(path), self.assertRaises(Fatal):
                run_task(
                    job_class(Queues.DEFAULT)(path, [], {}, "default", "default", 0, None),
                    JobContext(),
                )
        assert marks() == []
