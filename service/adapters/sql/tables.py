"""The tables as the adapters use them. The migrations in sql/ make them; a test holds the two together.

Ids compare as bytes (types.py), times are UTC milliseconds since 1970 in a BIGINT, units are a BIGINT, JSON is text.
Each index serves a query that runs all the time, named beside it.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, MetaData, String, Table
from sqlalchemy.schema import SchemaItem

from service.adapters.sql.types import (
    BUYER_ID_BYTES,
    NAME_BYTES,
    RESERVATION_ID_BYTES,
    SALE_ID_BYTES,
    Bytewise,
    json_text,
    sequence,
    word,
)

metadata = MetaData()


def _table(name: str, *parts: SchemaItem) -> Table:
    return Table(name, metadata, *parts, mysql_engine="InnoDB", mysql_charset="utf8mb4", mysql_collate="utf8mb4_bin")


def _sale_id(*, primary_key: bool = False) -> Column[str]:
    return Column("sale_id", Bytewise(SALE_ID_BYTES), ForeignKey("sales.id"), nullable=False, primary_key=primary_key)


def _reservation_id(*, primary_key: bool = False, nullable: bool = False) -> Column[str]:
    return Column("reservation_id", Bytewise(RESERVATION_ID_BYTES), nullable=nullable, primary_key=primary_key)


def _time(name: str, *, nullable: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable)


def _units(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def _word(name: str, *, nullable: bool = False, length: int = 24) -> Column[str]:
    return Column(name, word(length), nullable=nullable)


def _flag(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False)


sales = _table(
    "sales",
    Column("id", Bytewise(SALE_ID_BYTES), primary_key=True),
    Column("sku", String(NAME_BYTES), nullable=False),
    Column("price", BigInteger, nullable=False),
    _word("currency", length=8),
    Column("limit_per_buyer", BigInteger, nullable=False),
    _time("opens_at_ms", nullable=True),
    _time("closes_at_ms", nullable=True),
    Column("payment_window_s", Integer, nullable=False),
    Column("queue_deadline_s", Integer, nullable=False),
    _word("on_redis_loss"),
    _word("wanted_authority"),
    Column("wanted_segments", Integer, nullable=False),
    _word("status"),
    _time("status_at_ms"),
    _word("authority"),
    Column("epoch", BigInteger, nullable=False),
    _time("epoch_started_at_ms"),
    Column("segments", Integer, nullable=False),
    _units("initial"),
    _units("adjusted"),
    _units("available"),
    _flag("wants_redis"),
    _flag("sold_in_epoch"),
    _time("older_deadline_ms", nullable=True),
    _word("lost_run_id", nullable=True, length=64),
    _word("lost_replid", nullable=True, length=64),
    _time("lost_at_ms", nullable=True),
    _time("created_at_ms"),
    # each process's view, twice a second: settled sales stay for ever; retention
    Index("sales_by_status", "status", "status_at_ms"),
    # the sweep of owed effects: sales under Redis
    Index("sales_by_authority", "authority"),
)

sale_epochs = _table(
    "sale_epochs",
    _sale_id(primary_key=True),
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    _time("ended_at_ms"),
    # until when its candidates may become orders: settled when it ends, whatever the rules become
    _time("deadline_ms"),
    Column("segments", Integer, nullable=False),
    # when to unlink its keys in Redis; NULL: none are left
    _time("unlink_at_ms", nullable=True),
    # the sweep of owed unlinks
    Index("sale_epochs_by_unlink", "unlink_at_ms"),
)

orders = _table(
    "orders",
    Column("id", Bytewise(RESERVATION_ID_BYTES), primary_key=True),
    _sale_id(),
    Column("buyer_id", Bytewise(BUYER_ID_BYTES), nullable=False),
    Column("batch_id", Bytewise(NAME_BYTES), nullable=True),
    Column("segment", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    _units("quantity"),
    _word("status"),
    _word("reason", nullable=True),
    Column("order_no", Bytewise(NAME_BYTES), nullable=True),
    Column("amount", BigInteger, nullable=False),
    _word("currency", length=8),
    Column("fingerprint", Bytewise(NAME_BYTES), nullable=False),
    Column("coupon_code", String(NAME_BYTES), nullable=True),
    Column("metadata", json_text(), nullable=True),
    _time("created_at_ms"),
    _time("ordered_at_ms"),
    _time("expires_at_ms", nullable=True),
    _flag("window_extended"),
    Column("paid_by", Bytewise(NAME_BYTES), nullable=True),
    _flag("restocked"),
    Column("version", BigInteger, nullable=False),
    # a check-back, a redelivery: what became of this batch
    Index("orders_by_batch", "batch_id"),
    # a buyer's list; also every query over one sale
    Index("orders_by_buyer", "sale_id", "buyer_id", "created_at_ms"),
    # the sweep of expired orders
    Index("orders_by_expiry", "status", "expires_at_ms"),
)

buyer_counters = _table(
    "buyer_counters",
    _sale_id(primary_key=True),
    Column("buyer_id", Bytewise(BUYER_ID_BYTES), primary_key=True),
    _units("units"),
)

batch_decisions = _table(
    "batch_decisions",
    Column("batch_id", Bytewise(NAME_BYTES), primary_key=True),
    _sale_id(),
    Column("losers", json_text(), nullable=False),
    _time("decided_at_ms"),
    # retention: those of a settled sale
    Index("batch_decisions_by_sale", "sale_id"),
)

outbox = _table(
    "outbox",
    Column("seq", sequence(), primary_key=True, autoincrement=True),
    Column("event_id", Bytewise(NAME_BYTES), nullable=False, unique=True),
    _word("type", length=48),
    Column("sale_id", Bytewise(SALE_ID_BYTES), nullable=False),
    _reservation_id(),
    Column("body", json_text(), nullable=False),
    _time("created_at_ms"),
    _flag("sent"),
    # the relay: what is not sent, in order; retention: what is sent, the oldest first
    Index("outbox_unsent", "sent", "seq"),
)

payments = _table(
    "payments",
    Column("id", Bytewise(NAME_BYTES), primary_key=True),
    # not a foreign key: money is stored whatever sale its reservation id names
    Column("sale_id", Bytewise(NAME_BYTES), nullable=False),
    Column("reservation_id", Bytewise(NAME_BYTES), nullable=False),
    _word("status"),
    Column("amount", BigInteger, nullable=False),
    _word("currency", length=8),
    _word("outcome"),
    _time("received_at_ms"),
    _time("resolved_at_ms", nullable=True),
    # the order transaction: payments that came before their order
    Index("payments_by_reservation", "reservation_id", "outcome"),
    # the sweep of waiting payments
    Index("payments_by_outcome", "outcome", "received_at_ms"),
    # the ledger: counted in the index alone
    Index("payments_by_sale", "sale_id", "status", "outcome"),
)

refunds = _table(
    "refunds",
    Column("payment_id", Bytewise(NAME_BYTES), primary_key=True),
    Column("sale_id", Bytewise(NAME_BYTES), nullable=False),
    Column("reservation_id", Bytewise(NAME_BYTES), nullable=False),
    Column("amount", BigInteger, nullable=False),
    _word("currency", length=8),
    _word("reason"),
    _time("created_at_ms"),
    # the ledger
    Index("refunds_by_sale", "sale_id"),
)

# A ledger: it grows for ever, one row an order and one its end. Nothing deletes from it.
stock_movements = _table(
    "stock_movements",
    Column("seq", sequence(), primary_key=True, autoincrement=True),
    Column("movement_key", Bytewise(NAME_BYTES), nullable=False, unique=True),
    _sale_id(),
    _word("kind"),
    Column("delta", BigInteger, nullable=False),
    _reservation_id(nullable=True),
    _time("at_ms"),
    # the ledger's sum, in the index alone
    Index("stock_movements_by_sale", "sale_id", "delta"),
)

adjustments = _table(
    "adjustments",
    Column("id", Bytewise(NAME_BYTES), primary_key=True),
    _sale_id(),
    Column("delta", BigInteger, nullable=False),
    _flag("applied"),
    Column("owed_epoch", BigInteger, nullable=True),
    _units("owed_units"),
    _time("at_ms"),
    # the ledger
    Index("adjustments_by_sale", "sale_id"),
    # the sweep of unfinished adjustments: not applied, or owed to Redis
    Index("adjustments_unapplied", "applied", "at_ms"),
    Index("adjustments_owed", "owed_epoch"),
)

reviews = _table(
    "reviews",
    Column("id", Bytewise(NAME_BYTES), primary_key=True),
    _sale_id(),
    _reservation_id(nullable=True),
    _word("kind", length=48),
    Column("detail", json_text(), nullable=False),
    _time("opened_at_ms"),
    _time("resolved_at_ms", nullable=True),
    Column("resolved_by", String(NAME_BYTES), nullable=True),
    _word("resolution", nullable=True),
    # the desk: open reviews, oldest first
    Index("reviews_by_resolution", "resolved_at_ms", "opened_at_ms"),
)

audit = _table(
    "audit",
    Column("seq", sequence(), primary_key=True, autoincrement=True),
    _time("at_ms"),
    Column("actor", String(NAME_BYTES), nullable=False),
    _word("act", length=64),
    Column("subject", Bytewise(NAME_BYTES), nullable=False),
    Column("why", json_text(), nullable=False),
    Column("detail", json_text(), nullable=False),
    # the desk: the story of one sale or reservation
    Index("audit_by_subject", "subject", "seq"),
)

leases = _table(
    "leases",
    Column("name", Bytewise(NAME_BYTES), primary_key=True),
    Column("owner", Bytewise(NAME_BYTES), nullable=False),
    _time("expires_at_ms"),
)

owed_effects = _table(
    "owed_effects",
    _reservation_id(primary_key=True),
    _sale_id(),
    Column("segment", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    _word("effect"),
    # the sweep of owed effects: those of a sale's current epoch
    Index("owed_effects_by_epoch", "sale_id", "epoch"),
)

api_keys = _table(
    "api_keys",
    Column("id", Bytewise(NAME_BYTES), primary_key=True),
    Column("hash", Bytewise(NAME_BYTES), nullable=False, unique=True),
    _word("role"),
    _time("created_at_ms"),
)

# Who replayed what, and what became of it: like the audit, it stays.
replays = _table(
    "replays",
    Column("id", Bytewise(NAME_BYTES), primary_key=True),
    Column("scope", json_text(), nullable=False),
    Column("why", json_text(), nullable=False),
    Column("actor", String(NAME_BYTES), nullable=False),
    _flag("more"),
    _time("created_at_ms"),
    _time("finished_at_ms", nullable=True),
)

replay_items = _table(
    "replay_items",
    Column("replay_id", Bytewise(NAME_BYTES), ForeignKey("replays.id"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("message_id", Bytewise(NAME_BYTES), nullable=True),
    Column("batch_id", Bytewise(NAME_BYTES), nullable=True),
    # not a foreign key: a message may name a sale that this database has not
    Column("sale_id", Bytewise(NAME_BYTES), nullable=True),
    Column("epoch", BigInteger, nullable=True),
    Column("reservation_ids", json_text(), nullable=False),
    _word("outcome"),
    Column("why", json_text(), nullable=False),
    _time("born_at_ms", nullable=True),
    _time("begun_at_ms", nullable=True),
    _time("ended_at_ms", nullable=True),
)

# A discarded half message that one replay takes for itself, for ten minutes.
replay_claims = _table(
    "replay_claims",
    Column("message_id", Bytewise(NAME_BYTES), primary_key=True),
    Column("replay_id", Bytewise(NAME_BYTES), nullable=False),
    _time("claimed_at_ms"),
    # who claims another one takes away what is past
    Index("replay_claims_by_time", "claimed_at_ms"),
)
