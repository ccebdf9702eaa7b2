"""Writes ratings that a matrix of rank 2 explains, as training set and test set.

  python3 ratings.py FOLDER

makes FOLDER/train.csv and FOLDER/test.csv, with the columns user, item and rating.
A rating is 3 + b_u + b_i + <p_u, q_i> + noise, with all of them normal and the
noise of the standard deviation 0.1, so no model has a mean squared error below
0.01 on the test set.
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
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)

    def rows(number):
        return [[draw.gauss(0, 0.5)] + [draw.gauss(0, 0.7) for _ in range(2)] for _ in range(number)]

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
                rating += sum(p * q for p, q in zip(users[u][1:], items[i][1:]))
                table.writerow([f"user-{u}", 1000 + i, f"{rating:.3f}"])


if __name__ == "__main__":
    main()
