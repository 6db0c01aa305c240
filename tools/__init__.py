"""Scripts for people who work on this repository, run from its root: `python -m tools.generate`.

- `generate` writes the generated parts and the pictures of the documentation (`catalogue`,
  `command_line`, `measurements`, `reference` and `results` compose them).
- `results` stores the figures of a finished experiment in docs/results.
- `site` builds the documentation site, and `gallery` the reports that it shows.
- `counts` measures the code base, `freeze` compares what two versions compute, and `mutate` checks
  that tests notice changed operators.
"""
