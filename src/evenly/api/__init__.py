"""The Python interface: what the command line does, as functions that return objects.

`evenly.compare`, `tune`, `run`, `reproduce` and `load_results` are here. The command line is a thin
layer over them, so that both give the same results.

- `settings`: arguments turned into a plan: data, methods, models, training.
- `execution`: runs plans, studies and papers, in memory or into a folder. `progress`: bars.
- `results`: what they return: reports, `tables` that compare, charts (`plots`) and models
  (`trained`). `study_results` and `search` are the same for studies and for tuning.
- `experiments`: the public functions.
"""
