# SPDX-License-Identifier: Apache-2.0

"""batch_indices and digest: pure functions."""

import hashlib
import struct
import unittest

import numpy as np

import holdfast


class BatchIndicesTest(unittest.TestCase):
    def test_the_order_is_that_of_the_cpp_worker(self):
        # The stream of common/job/example_order_test.cc, cut into batches of 4.
        stream = [2, 4, 0, 5, 9, 7, 6, 3, 1, 8, 4, 5, 9, 7, 0, 2, 1, 8, 6, 3]
        for batch in range(5):
            got = holdfast.batch_indices(batch, 10, 4, seed=1)
            self.assertEqual(got.dtype, np.int64)
            self.assertEqual(got.tolist(), stream[4 * batch : 4 * batch + 4])

    def test_wide_seeds(self):
        got = holdfast.batch_indices(29999, 60000, 2, seed=0x123456789ABCDEF0)
        self.assertEqual(got.tolist(), [17053, 18377])

    def test_an_epoch_has_each_example_once(self):
        epoch = np.concatenate([holdfast.batch_indices(k, 1000, 100, seed=3) for k in range(10)])
        self.assertEqual(sorted(epoch.tolist()), list(range(1000)))

    def test_the_order_may_be_that_of_the_data(self):
        got = holdfast.batch_indices(2, 10, 4, seed=1, shuffle="none")
        self.assertEqual(got.tolist(), [8, 9, 0, 1])

    def test_blocks_are_read_one_after_the_other(self):
        def batch(k):
            return holdfast.batch_indices(k, 1000, 100, seed=3, shuffle="blocks", shuffle_block=100)

        batches = [batch(k) for k in range(10)]
        self.assertEqual([len(set(rows // 100)) for rows in batches], [1] * 10)
        self.assertEqual(sorted(np.concatenate(batches).tolist()), list(range(1000)))
        self.assertNotEqual([rows[0] // 100 for rows in batches], list(range(10)))
        self.assertNotEqual(batches[0].tolist(), batch(10).tolist())

    def test_other_words_are_refused(self):
        with self.assertRaisesRegex(ValueError, "shuffle is 'some', not one of full, blocks"):
            holdfast.batch_indices(0, 10, 4, shuffle="some")
        for wrong, error in (
            ({"batch": -1}, "batch is -1; it must be from 0"),
            ({"batch": 2**64 + 3}, "batch is 18446744073709551619; it must be from 0"),
            ({"batch": 1.0}, "batch is 1.0; it must be an int"),
            ({"seed": -1}, "seed is -1; it must be from 0"),
            ({"examples": 2**63}, "examples is 9223372036854775808; it must be from 0"),
            ({"batch_size": -1}, "batch_size is -1; it must be from 0"),
        ):
            with self.subTest(error), self.assertRaisesRegex((TypeError, ValueError), error):
                holdfast.batch_indices(**{"batch": 0, "examples": 10, "batch_size": 2, **wrong})
        with self.assertRaisesRegex(ValueError, "shuffle_block is 0"):
            holdfast.batch_indices(0, 10, 4, shuffle="blocks", shuffle_block=0)

    def test_wrong_numbers_are_refused(self):
        for batch, examples, batch_size in ((0, 0, 1), (0, 10, 0), (2**62, 10, 4)):
            with self.subTest(batch=batch, examples=examples, batch_size=batch_size):
                with self.assertRaises(holdfast.Refused):
                    holdfast.batch_indices(batch, examples, batch_size)


class DigestTest(unittest.TestCase):
    def test_bytes(self):
        # Computed by hand as described in common/tensor/digest.h.
        expected = hashlib.sha256(
            b"a\0[]\0" + struct.pack("<f", 3) + b"b\0[2,3]\0" + struct.pack("<6f", *range(6))
        ).hexdigest()
        values = {
            "b": np.arange(6, dtype=np.float32).reshape(2, 3),
            "a": np.array(3, dtype=np.float32),
        }
        self.assertEqual(holdfast.digest(values), expected)
        # The memory layout does not matter.
        values["b"] = np.asfortranarray(values["b"])
        self.assertEqual(holdfast.digest(values), expected)

    def test_other_dtypes_are_refused(self):
        with self.assertRaisesRegex(TypeError, '"a" has dtype float64'):
            holdfast.digest({"a": np.zeros(1)})


if __name__ == "__main__":
    unittest.main()
