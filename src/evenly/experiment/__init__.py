"""Experiments: what to train, how it is run, and what a folder of results holds.

The nouns of this package:

- A *plan* holds everything that determines an experiment: data, methods, rounds, seeds.
- A *variant* is one row of a comparison: a method with its settings. Its *members* are the
  algorithms it trains, usually one.
- A *run* is one variant trained on one seed. Its *trace* records the evaluations and cohorts.
- A *program* is a group of members that are trained and stored together for one seed. A *job* is
  the execution of one program.
- A *store* is the folder that holds the traces, models and checkpoints of one plan.
- A *comparison* is the result of a plan: all runs and the federation they were trained on.
- A *study* trains one plan for each of its *cells* (partitions of the data) and chooses settings by
  a *protocol*.
- A *tuning* searches settings in *trials*, which are trained in *batches*.
- A *deployment* is a federation of real clients. Its folder can be read like the results of a plan.

Modules, in the order in which a plan passes through them:

- `config`: experiment files in TOML, turned into plans. `paper`: figures of a paper beside ours.
- `plan`: plans and their programs. `python_objects`: data and models from Python in a plan.
  `estimate`: memory and number of programs before a run.
- `execute`: trains a plan, here or on a cluster. `cluster` and `worker`: jobs on Ray.
- `observe`: progress and evaluations while a plan runs. `loggers`: TensorBoard, MLflow and Weights
  & Biases.
- `comparison`: runs and their metrics. `result_rows`: the rows of results.csv. `promises`: what
  private runs withhold from these rows, and their privacy record.
- `folder`: the files of a folder of results, its lock and its run record. `deployment`: the files
  that only deployments have.
- `reopen`: reads finished folders without training, and compares two of them.
- `study`: studies. `tuning_space` and `tuning`: what is searched, and the search.
  `search_trials`: the database of trials, and the choice among them.
"""
