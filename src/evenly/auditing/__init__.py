"""Audit any model's predictions: how evenly it serves clients and groups of people.

`evenly.audit(frame, ...)` is the entry point. Modules, in the order in which a table passes
through them:

- `read`: columns of a table, and what they may contain. `people`: groups of people in it.
- `views`: the figures of clients, of groups, and of groups within clients. `GAPS` and `RANGES`
  list the group metrics of an audit. `estimates`: their intervals. `hiding`: what is withheld
  where cells are small.
- `significance`: which differences are statistically significant after Holm's correction.
- `assessment`: the whole audit, and its `result`.
- `findings`: the summary in sentences. `page`, `page_sections`, `score_section` and `charts`: the
  HTML page.
"""

from evenly.auditing.assessment import audit, audit_file
from evenly.auditing.result import Audit, Figure

__all__ = ["Audit", "Figure", "audit", "audit_file"]
