"""Audit any model's predictions: how evenly it serves clients and groups of people.

`evenly.audit(frame, ...)` is the entry point. Modules, in the order in which a table passes
through them:

- `read`: columns of a table, and what they may contain. `people`: groups of people in it.
- `assessment`: the entry point, from a table to counts. `measurement`: the whole audit, from
  counts. `site_tables`: the same for counts that the sites of a federation send.
- `views`: the figures of clients and of groups. `GAPS` and `RANGES` list the group metrics of an
  audit. `within`: gaps within clients. `estimates`: intervals. `hiding`: what is withheld where
  cells are small.
- `significance`: which differences are statistically significant after Holm's correction.
- `result`: what an audit returns. `requirements`: whether its figures satisfy a user's limits.
- `findings`: the summary in sentences. `page`: the HTML page. `page_sections` has its sections on
  clients and groups, `origin_section` the part on where a gap comes from, `score_section` the
  section on scores, and `charts` its charts.
"""

from evenly.auditing.assessment import audit
from evenly.auditing.result import Audit, Figure

__all__ = ["Audit", "Figure", "audit"]
