"""The Python interface: what the command line does, as functions that return objects.

`evenly.compare`, `tune`, `run`, `reproduce` and `load_results` are here. The command line is a thin
layer over them, so that both give the same results.

- `settings`: arguments turned into a plan: data, methods, models, training.
- `execution`: runs plans and studies, in memory or into a folder, with progress.
- `results`: what they return: tables, charts, reports and models.
- `experiments`: the public functions.
"""
