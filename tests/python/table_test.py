# SPDX-License-Identifier: Apache-2.0

"""From a table to a trained model, compared with the same model in PyTorch."""

import json
import os
import re
import statistics
import tempfile
import unittest

import environments

SEEDS = range(5)
EPOCHS = 20
BATCH = 32

_WRITE = """
import csv, sys
from sklearn.datasets import load_breast_cancer
data = load_breast_cancer()
names = [name.replace(" ", "_") for name in data.feature_names]
with open(sys.argv[1], "w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow([*names, "class"])
    for row, label in zip(data.data, data.target):
        rows.writerow([*map(repr, map(float, row)), data.target_names[label]])
"""

# The same layers, distributions of first values, rule and batch size. The last line is a JSON list
# of the accuracies, one per seed.
_TORCH = """
import csv, json, sys
import numpy as np, torch
train, test, epochs, batch, seeds = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])

def read(path):
    rows = list(csv.reader(open(path)))[1:]
    x = np.array([[float(cell) for cell in row[:-1]] for row in rows])
    return x, np.array([row[-1] == "malignant" for row in rows], np.int64)

train_x, train_y = read(train)
test_x, test_y = read(test)
mean, deviation = train_x.mean(0), train_x.std(0)
tensor = lambda x: torch.tensor((x - mean) / deviation, dtype=torch.float32)
train_x, test_x, train_y, test_y = (
    tensor(train_x), tensor(test_x), torch.tensor(train_y), torch.tensor(test_y))
accuracies = []
for seed in range(seeds):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(30, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    for layer in (model[0], model[2]):
        torch.nn.init.xavier_uniform_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(epochs):
        for begin in range(0, len(order := torch.randperm(len(train_x))), batch):
            some = order[begin:begin + batch]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(train_x[some]), train_y[some]).backward()
            optimizer.step()
    with torch.no_grad():
        accuracies.append((model(test_x).argmax(1) == test_y).float().mean().item())
print(json.dumps(accuracies))
"""

_JOB = """
name: "breast_cancer"
model {{
  sequential {{
    layers {{ dense {{ units: 16 }} }}
    layers {{ tanh {{}} }}
    layers {{ dense {{ units: 2 }} }}
    loss {{ softmax_cross_entropy {{}} }}
  }}
}}
data {{
  train {{ {train} }}
  test {{ {test} }}
}}
batch_size: {batch}
epochs: {epochs}
optimizer {{ learning_rate: 0.1 momentum {{ momentum: 0.9 }} }}
evaluation {{ auc: true confusion_matrix: true }}
"""


class TableTest(unittest.TestCase):
    def test_a_table_is_learned_as_torch_learns_it(self):
        environment = environments.Environment(
            "/usr/bin/python3", "scikit-learn==1.9.1", beside=environments.FRAMEWORKS
        )
        with tempfile.TemporaryDirectory() as folder:
            table = os.path.join(folder, "cancer.csv")
            train, test = (os.path.join(folder, f"cancer-{part}.csv") for part in ("train", "test"))
            environment.python("-c", _WRITE, table)
            environment.run("holdfast", "data", "split", table, "--fraction=0.3", "--seed=1")
            schema = environment.run("holdfast", "data", "inspect", train)
            schema = schema[schema.index("csv {") :]
            job = os.path.join(folder, "job.textproto")
            with open(job, "w", encoding="utf-8") as file:
                file.write(
                    _JOB.format(
                        train=schema,
                        test=re.sub(r"files: .*", f'files: "{test}"', schema),
                        batch=BATCH,
                        epochs=EPOCHS,
                    )
                )
            ours = []
            for seed in SEEDS:
                run = os.path.join(folder, f"run-{seed}")
                environment.run(
                    "holdfast", "local", f"--job={job}", f"--seed={seed}", f"--run_dir={run}",
                    "--ps=1", "--workers=1", "--status_port=none",
                )
                with open(os.path.join(run, "result.json"), encoding="utf-8") as file:
                    result = json.load(file)
                ours.append(result["test_accuracy"])
                self.assertGreater(result["test_auc"], 0.97)
                matrix = [row["predicted"] for row in result["test_by_class"]]
                right = sum(row[i] for i, row in enumerate(matrix))
                self.assertAlmostEqual(right / sum(map(sum, matrix)), result["test_accuracy"])
            said = environment.python(
                "-c", _TORCH, train, test, str(EPOCHS), str(BATCH), str(len(SEEDS))
            )
        theirs = json.loads(said.splitlines()[-1])
        # Five seeds of either model differ by about 0.01; with a test set of 171, one example is
        # 0.006.
        self.assertLess(
            abs(statistics.mean(ours) - statistics.mean(theirs)), 0.015, (ours, theirs)
        )
        self.assertGreater(statistics.mean(ours), 0.95)


if __name__ == "__main__":
    unittest.main()
