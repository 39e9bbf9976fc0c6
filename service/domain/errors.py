"""Every error Dropgate raises on purpose.

    DropgateError
    ├── Refused                     the caller may not have what it asks for; nothing was written
    │   ├── InvalidRequest          422  a field is wrong; `field` names it
    │   ├── IdempotencyKeyReused    422  same key, another body
    │   ├── NotFound                404  a sale or a reservation that no store knows
    │   ├── Conflict                409  the state forbids it; `code` says how
    │   ├── Unauthenticated         401
    │   ├── Forbidden               403
    │   └── Busy                    429  a bound is reached; `retry_after_s`
    ├── InDoubt                     503  what happened, or will happen, is not known here
    │   ├── OutcomeUnknown               the reservation may or may not come to be
    │   ├── Unavailable                  nothing was written; a component is away
    │   │   ├── StockUnavailable         Redis did not answer in time
    │   │   │   └── StockRefused             it did not do it, and will not
    │   │   ├── StoreUnavailable         SQL did not answer in time
    │   │   └── BrokerUnavailable        the broker did not answer in time
    │   │       └── BrokerRefused        it has no such topic or group, or the topic is of another type
    │   └── EpochChanged                 the authority changed under the caller: start over
    ├── Permanent                   500  our own fault; nothing was written, and running it again cannot help
    │   ├── InvariantBroken              a guard in the database held: a counter, or a row that exists only once
    │   └── RowRefused                   the database cannot hold such a row
    ├── UndecodableMessage               a body that is no message of ours: dead letter, or UNKNOWN
    │   └── UnknownSchema                one of a schema this release does not know: for another release to read
    ├── CannotStart                      something that a process needs of its own cannot be started
    └── SettingRefused                   a setting that this release cannot use

The class carries the facts as fields; the docstring is the message. `api/problems.py` maps the classes to RFC 9457.
"""

from __future__ import annotations

from typing import ClassVar

from service.domain.ids import ReservationId, SaleId


class DropgateError(Exception):
    """Something went wrong in Dropgate."""

    code: ClassVar[str] = "internal_error"

    def __str__(self) -> str:
        facts = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if value is not None)
        message = (type(self).__doc__ or "").strip().splitlines()[0]
        return f"{message} ({facts})" if facts else message


class Refused(DropgateError):
    """The request was refused and nothing was written."""


class InvalidRequest(Refused):
    """A field of the request is wrong."""

    code = "invalid_request"

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        self.problem = problem


class IdempotencyKeyReused(Refused):
    """This Idempotency-Key was used before with another body: send a new key."""

    code = "idempotency_key_reused"

    def __init__(self, reservation_id: ReservationId) -> None:
        super().__init__(reservation_id)
        self.reservation_id = reservation_id


class NotFound(Refused):
    """No store knows this id."""

    code = "not_found"

    def __init__(self, kind: str, id: str) -> None:  # the word of the API's error
        super().__init__(kind, id)
        self.kind = kind
        self.id = id


class Conflict(Refused):
    """The state forbids it now."""

    code = "conflict"

    def __init__(
        self,
        code: str,
        *,
        sale_id: SaleId | None = None,
        reservation_id: ReservationId | None = None,
        held_reservation_id: ReservationId | None = None,
        final: bool | None = None,
    ) -> None:
        super().__init__(code)
        self.held_reservation_id = held_reservation_id
        self.conflict = code
        self.sale_id = sale_id
        self.reservation_id = reservation_id
        self.final = final


class Unauthenticated(Refused):
    """A valid bearer key is missing: create one with `dropgate key create`."""

    code = "unauthenticated"

    def __init__(self, why: str | None = None) -> None:
        super().__init__(why)
        self.why = why


class Forbidden(Refused):
    """This key's role may not do this."""

    code = "forbidden"

    def __init__(self, needs: str) -> None:
        super().__init__(needs)
        self.needs = needs


class Busy(Refused):
    """Too many requests wait already: try again after `retry_after_s`."""

    code = "too_busy"

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(retry_after_s)
        self.retry_after_s = retry_after_s


class InDoubt(DropgateError):
    """What happened is not known here."""

    code = "outcome_unknown"


class OutcomeUnknown(InDoubt):
    """The reservation may or may not come to be: ask again with the same key, or GET it."""

    def __init__(self, reservation_id: ReservationId | None = None) -> None:
        super().__init__(reservation_id)
        self.reservation_id = reservation_id


class Unavailable(InDoubt):
    """A component is away: try again, with the same key."""

    code = "unavailable"

    def __init__(self, what: str, why: str | None = None, remedy: str | None = None) -> None:
        super().__init__(what, why, remedy)
        self.what = what
        self.why = why
        self.remedy = remedy


class StockUnavailable(Unavailable):
    """Redis did not answer in time; a call that changes something may still have happened."""


class StockRefused(StockUnavailable):
    """Redis did not do it, and will not: it said so, or was never asked."""


class StoreUnavailable(Unavailable):
    """The SQL database did not answer in time; a COMMIT may still have happened: the same call again does no harm."""

    code = "outcome_unknown"


class StoreTimedOut(StoreUnavailable):
    """The SQL database was not done in time: a row is stuck, it was too much at once, or it is away without a word."""


class BrokerUnavailable(Unavailable):
    """The broker did not answer in time; a message may still have been stored."""


class BrokerRefused(BrokerUnavailable):
    """A topic or group is missing at the broker, or of another type: nothing was stored.

    Nor will it be until somebody sets it right. A loop may well go on trying; a caller need not."""


class EpochChanged(InDoubt):
    """The sale's authority or epoch changed since it was read: start over."""

    code = "unavailable"

    def __init__(self, sale_id: SaleId, expected_epoch: int, found_epoch: int) -> None:
        super().__init__(sale_id, expected_epoch, found_epoch)
        self.sale_id = sale_id
        self.expected_epoch = expected_epoch
        self.found_epoch = found_epoch


class UndecodableMessage(DropgateError):
    """A message body is malformed: no release can read it."""

    code = "undecodable_message"

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class UnknownSchema(UndecodableMessage):
    """A message body is of a schema this release does not know: a newer release, rolling out or back, can read it."""

    def __init__(self, schema: int) -> None:
        super().__init__("unknown schema")
        self.schema = schema


class Permanent(DropgateError):
    """Our own fault: nothing was written, and running it again cannot help."""


class InvariantBroken(Permanent):
    """A guard in the database held: what was about to be written would break an invariant."""

    def __init__(self, what: str, why: str | None = None) -> None:
        super().__init__(what, why)
        self.what = what
        self.why = why


class RowRefused(Permanent):
    """The database cannot hold such a row, or does not understand the statement."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class CannotStart(DropgateError):
    """Something that this process needs of its own cannot be started."""

    code = "cannot_start"

    def __init__(self, what: str, why: str) -> None:
        super().__init__(what, why)
        self.what = what
        self.why = why


class SettingRefused(DropgateError):
    """A setting is not one that this release can use."""

    code = "setting_refused"

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(setting, problem)
        self.setting = setting
        self.problem = problem
