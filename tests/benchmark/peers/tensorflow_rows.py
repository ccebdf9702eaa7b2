# SPDX-License-Identifier: Apache-2.0

"""Rows of a variable on TensorFlow's classic parameter server: gather, scatter_sub.

The variable has memory for all rows; ids are row numbers.
"""

import harness
import rows
import tensorflow_ps

PEER = "tensorflow"


def measure(flags):
    tf, _, config, server = tensorflow_ps.start_server(flags)
    batches = rows.Batches(flags)
    count = batches.num_unique
    with tf.device("/job:ps/task:0"):
        table = tf.get_variable("table", [flags.rows, flags.row_length],
                                initializer=tf.zeros_initializer())
    with tf.device("/job:worker/task:0"):
        # Learning rate times gradient; a variable for the same reason as in tensorflow_ps.py.
        updates = tf.get_variable("updates", [count, flags.row_length])
        pushed, pulled = (tf.placeholder(tf.int64, [count]) for _ in range(2))
    with tf.device("/job:ps/task:0"):
        push = tf.scatter_sub(table, pushed, updates).op
        gathered = tf.gather(table, pulled)
        with tf.control_dependencies([push]):
            gathered_after = tf.gather(table, pulled)
    with tf.device("/job:worker/task:0"):
        # The rows are transferred to the worker, which uses them.
        pull, push_and_pull = (tf.identity(values) for values in (gathered, gathered_after))
    with tf.Session(server.target, config=config) as session:
        session.run(tf.global_variables_initializer())
        run_push = session.make_callable(push, [pushed])
        run_pull = session.make_callable(pull, [pulled])
        run_both = session.make_callable(push_and_pull, [pushed, pulled])
        unique = lambda: batches.unique[batches.next()]
        rows.report(PEER, "push", flags, count, lambda: run_push(unique()))
        rows.report(PEER, "pull", flags, count, lambda: run_pull(unique()))
        rows.report(PEER, "pushpull", flags, count, lambda: run_both(unique(), unique()))


def main():
    parser = rows.parser()
    parser.add_argument("--role")
    parser.add_argument("--index", type=int)
    parser.add_argument("--ps_port")
    parser.add_argument("--worker_ports")
    flags = parser.parse_args()
    if flags.role == "ps":
        tensorflow_ps.start_server(flags)[-1].join()
    elif flags.role:
        measure(flags)
    else:
        words = {name: getattr(flags, name)
                 for name in ("rows", "ids", "zipf", "row_length", "seconds")}
        ports = {"ps_port": harness.free_port(), "worker_ports": harness.free_port()}
        with harness.Processes() as processes:
            processes.start("ps", **ports)
            processes.wait(processes.start("worker", **ports, **words))


if __name__ == "__main__":
    main()
