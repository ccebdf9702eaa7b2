# SPDX-License-Identifier: Apache-2.0

"""Writes a training set and a test set of ratings that a matrix of rank 2 explains.

  python3 ratings.py FOLDER

creates FOLDER/train.csv and FOLDER/test.csv, with the columns user, item and rating.
A rating is 3 + b_u + b_i + <p_u, q_i> + noise, where all terms are normally distributed and
the noise has standard deviation 0.1, so no model has a mean squared error below 0.01 on the
test set.
"""

import csv
import pathlib
import random
import sys

USERS = 200
ITEMS = 150
TRAIN = 15000
TEST = 2000
NOISE = 0.1


def main():
    """Draws users, items and ratings, and writes the files."""
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)

    def rows(number):
        """For each user or item: b, and the two factors."""
        return [[draw.gauss(0, sigma) for sigma in (0.5, 0.7, 0.7)] for _ in range(number)]

    users = rows(USERS)
    items = rows(ITEMS)
    for name, number in (("train", TRAIN), ("test", TEST)):
        with open(folder / f"{name}.csv", "w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["user", "item", "rating"])
            for _ in range(number):
                u = draw.randrange(USERS)
                i = draw.randrange(ITEMS)
                rating = 3 + users[u][0] + items[i][0] + draw.gauss(0, NOISE)
                rating += sum(p * q for p, q in zip(users[u][1:], items[i][1:], strict=True))
                table.writerow([f"user-{u}", 1000 + i, f"{rating:.3f}"])


if __name__ == "__main__":
    main()
