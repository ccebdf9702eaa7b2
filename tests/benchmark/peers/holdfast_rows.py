# SPDX-License-Identifier: Apache-2.0

"""Rows of Holdfast's embedding tables, measured with `holdfast bench rows`."""

import harness
import holdfast
import rows


def main():
    parser = rows.parser()
    parser.add_argument("--program", required=True, help="path of the holdfast command")
    flags = parser.parse_args()
    words = [f"--{name}={getattr(flags, name)}"
             for name in ("rows", "ids", "zipf", "row_length", "seconds")]
    for result in holdfast.bench(flags.program, ["rows", *words]):
        harness.report("holdfast", f"{result['op']}_{flags.row_length}", result["ns_per_row"],
                       "ns/row")


if __name__ == "__main__":
    main()
