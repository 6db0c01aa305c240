"""Audit any model's predictions: how evenly it serves clients and groups of people.
`evenly.audit(frame, ...)` is the door.
"""

from evenly.auditing.assessment import audit, audit_file
from evenly.auditing.result import Audit, Figure

__all__ = ["Audit", "Figure", "audit", "audit_file"]
