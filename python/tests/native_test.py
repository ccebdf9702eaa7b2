# SPDX-License-Identifier: Apache-2.0

"""Errors and waits of the C API, with functions of the test's own in its place."""

import gc
import subprocess
import sys
import unittest
from unittest import mock

import numpy as np

import holdfast
from holdfast import _native


class Library:
    """Errors are numbers: indices of `errors`, from 1."""

    def __init__(self):
        self.errors = []  # (kind, message, task, exit code)
        self.freed = []

    def make(self, reference, *error):
        self.errors.append(error)
        reference._obj.value = len(self.errors)
        return error[0]

    def of(self, error):
        return self.errors[error.value - 1]

    def holdfast_error_kind(self, error):
        return self.of(error)[0]

    def holdfast_error_message(self, error):
        return self.of(error)[1].encode()

    def holdfast_error_task(self, error):
        return self.of(error)[2].encode()

    def holdfast_error_exit_code(self, error):
        return self.of(error)[3]

    def holdfast_error_free(self, error):
        self.freed.append(error.value)


class NativeTest(unittest.TestCase):
    def setUp(self):
        self.library = Library()
        patch = mock.patch.object(_native, "library", self.library)
        patch.start()
        self.addCleanup(patch.stop)

    def test_exceptions(self):
        # The kinds of holdfast.h that a call can end with.
        for kind, cls, exit_code in (
            (1, holdfast.Refused, 2),
            (2, holdfast.Error, 1),
            (5, holdfast.Fenced, 138),
            (6, holdfast.JobFailed, 1),
            (7, holdfast.Unavailable, 138),
            (8, holdfast.Refused, 2),
            (10, holdfast.Error, 1),
            (11, holdfast.Error, 1),
            (12, holdfast.Stopped, 0),
        ):
            with self.assertRaises(holdfast.Error) as caught:
                _native.call(
                    lambda error, kind=kind, code=exit_code: self.library.make(
                        error, kind, "why", "/job:ps/task:1", code
                    )
                )
            self.assertIs(type(caught.exception), cls)
            self.assertEqual(str(caught.exception), "why")
            self.assertEqual(caught.exception.task, "/job:ps/task:1")
            self.assertEqual(caught.exception.exit_code, exit_code)
            # The exit code of the class, unless the error has another.
            self.assertEqual(cls("why").exit_code, exit_code)
        self.assertEqual(self.library.freed, list(range(1, 10)))

    def test_a_missing_file(self):
        with self.assertRaisesRegex(FileNotFoundError, "no checkpoint"):
            _native.call(lambda error: self.library.make(error, 9, "no checkpoint", "", 2))

    def test_attributes(self):
        self.assertEqual(holdfast.JobFailed("no disk").reason, "no disk")
        self.assertEqual(holdfast.Refused("steps: 0").what, "steps: 0")
        rolled_back = holdfast.RolledBack(7)
        self.assertEqual((rolled_back.step, rolled_back.exit_code), (7, 138))

    def test_waits_are_repeated_and_told(self):
        now = [0.0]
        answers = [3] * 40 + [0]

        def function(handle, timeout_ms, error):
            self.assertEqual((handle, timeout_ms), (8, _native.SLICE_MS))
            now[0] += 0.7
            kind = answers.pop(0)
            return (
                self.library.make(error, kind, "waiting for /job:ps/task:1", "", 0) if kind else 0
            )

        with mock.patch("time.monotonic", lambda: now[0]):
            with self.assertLogs("holdfast") as logs:
                _native.wait(function, 8, _native.SLICE_MS)
        self.assertEqual(answers, [])
        # After 10 s, and then every 10 s, during 28 s.
        self.assertEqual(
            [record.getMessage() for record in logs.records],
            [f"waiting for /job:ps/task:1, for {seconds} s" for seconds in (10, 21)],
        )
        self.assertEqual(len(self.library.freed), 40)

    def test_a_wait_that_fails(self):
        answers = [3, 6]

        def function(handle, timeout_ms, error):
            return self.library.make(error, answers.pop(0), "why", "", 1)

        with self.assertRaises(holdfast.JobFailed):
            _native.wait(function, 8, _native.SLICE_MS)
        self.assertEqual(self.library.freed, [1, 2])


class MemoryTest(unittest.TestCase):
    def test_arrays_keep_it(self):
        freed = []
        floats = np.arange(6, dtype=np.float32)
        memory = _native.Memory(7, freed.append)
        array = memory.array(floats.ctypes.data, (2, 3), writable=False)
        scalar = memory.array(floats.ctypes.data + 4, (), writable=True)
        empty = memory.array(0, (0, 3), writable=True)
        self.assertEqual(array.tolist(), [[0, 1, 2], [3, 4, 5]])
        self.assertFalse(array.flags.writeable)
        scalar[...] = 9
        self.assertEqual(floats[1], 9)
        self.assertEqual(empty.shape, (0, 3))
        del memory, scalar
        part = array[1:]
        del array
        gc.collect()
        self.assertEqual(freed, [])
        del part
        gc.collect()
        self.assertEqual(freed, [7])


class ImportTest(unittest.TestCase):
    def test_no_framework_is_needed(self):
        program = "import sys, holdfast; print(*{'torch', 'jax'} & set(sys.modules))"
        done = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE)
        self.assertEqual(done.stdout, b"\n")


if __name__ == "__main__":
    unittest.main()
