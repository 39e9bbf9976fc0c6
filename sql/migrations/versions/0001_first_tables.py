"""The first tables.

A migration is frozen: it says everything itself and imports nothing of the service. What it may do is add; what the
release before needs goes a release later, so that both can run while one replaces the other.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None

MYSQL = ("mysql", "mariadb")
INNODB = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}


def bytewise(length: int) -> sa.types.TypeEngine:
    """Compared as bytes on every database."""
    return sa.String(length).with_variant(mysql.VARBINARY(length), *MYSQL)


def word(length: int = 24) -> sa.types.TypeEngine:
    """A word of ours, ASCII."""
    ascii_word = mysql.VARCHAR(length, charset="ascii", collation="ascii_bin")
    return sa.String(length).with_variant(ascii_word, *MYSQL)


def json_text() -> sa.types.TypeEngine:
    return sa.Text().with_variant(mysql.MEDIUMTEXT(), *MYSQL)


def sequence() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def sales() -> None:
    op.create_table(
        "sales",
        sa.Column("id", bytewise(48), primary_key=True),
        sa.Column("sku", sa.String(255), nullable=False),
        sa.Column("price", sa.BigInteger(), nullable=False),
        sa.Column("currency", word(8), nullable=False),
        sa.Column("limit_per_buyer", sa.BigInteger(), nullable=False),
        sa.Column("opens_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("closes_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("payment_window_s", sa.Integer(), nullable=False),
        sa.Column("queue_deadline_s", sa.Integer(), nullable=False),
        sa.Column("on_redis_loss", word(), nullable=False),
        sa.Column("wanted_authority", word(), nullable=False),
        sa.Column("wanted_segments", sa.Integer(), nullable=False),
        sa.Column("status", word(), nullable=False),
        sa.Column("status_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("authority", word(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("epoch_started_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("segments", sa.Integer(), nullable=False),
        sa.Column("initial", sa.BigInteger(), nullable=False),
        sa.Column("adjusted", sa.BigInteger(), nullable=False),
        sa.Column("available", sa.BigInteger(), nullable=False),
        sa.Column("wants_redis", sa.Boolean(), nullable=False),
        sa.Column("sold_in_epoch", sa.Boolean(), nullable=False),
        sa.Column("older_deadline_ms", sa.BigInteger(), nullable=True),
        sa.Column("lost_run_id", word(64), nullable=True),
        sa.Column("lost_replid", word(64), nullable=True),
        sa.Column("lost_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        **INNODB,
    )
    op.create_index("sales_by_status", "sales", ["status", "status_at_ms"])
    op.create_index("sales_by_authority", "sales", ["authority"])


def sale_epochs() -> None:
    op.create_table(
        "sale_epochs",
        sa.Column("sale_id", bytewise(48), sa.ForeignKey("sales.id"), primary_key=True),
        sa.Column("epoch", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("ended_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("deadline_ms", sa.BigInteger(), nullable=False),
        sa.Column("segments", sa.Integer(), nullable=False),
        sa.Column("unlink_at_ms", sa.BigInteger(), nullable=True),
        **INNODB,
    )
    op.create_index("sale_epochs_by_unlink", "sale_epochs", ["unlink_at_ms"])


def orders() -> None:
    op.create_table(
        "orders",
        sa.Column("id", bytewise(96), primary_key=True),
        sa.Column("sale_id", bytewise(48), sa.ForeignKey("sales.id"), nullable=False),
        sa.Column("buyer_id", bytewise(512), nullable=False),
        sa.Column("batch_id", bytewise(255), nullable=True),
        sa.Column("segment", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("quantity", sa.BigInteger(), nullable=False),
        sa.Column("status", word(), nullable=False),
        sa.Column("reason", word(), nullable=True),
        sa.Column("order_no", bytewise(255), nullable=True),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("currency", word(8), nullable=False),
        sa.Column("fingerprint", bytewise(255), nullable=False),
        sa.Column("coupon_code", sa.String(255), nullable=True),
        sa.Column("metadata", json_text(), nullable=True),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("ordered_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("window_extended", sa.Boolean(), nullable=False),
        sa.Column("paid_by", bytewise(255), nullable=True),
        sa.Column("restocked", sa.Boolean(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        **INNODB,
    )
    op.create_index("orders_by_batch", "orders", ["batch_id"])
    op.create_index("orders_by_buyer", "orders", ["sale_id", "buyer_id", "created_at_ms"])
    op.create_index("orders_by_expiry", "orders", ["status", "expires_at_ms"])


def buyer_counters() -> None:
    op.create_table(
        "buyer_counters",
        sa.Column("sale_id", bytewise(48), sa.ForeignKey("sales.id"), primary_key=True),
        sa.Column("buyer_id", bytewise(512), primary_key=True),
        sa.Column("units", sa.BigInteger(), nullable=False),
        **INNODB,
    )


def batch_decisions() -> None:
    op.create_table(
        "batch_decisions",
        sa.Column("batch_id", bytewise(255), primary_key=True),
        sa.Column("sale_id", bytewise(48), sa.ForeignKey("sales.id"), nullable=False),
        sa.Column("losers", json_text(), nullable=False),
        sa.Column("decided_at_ms", sa.BigInteger(), nullable=False),
        **INNODB,
    )
    op.create_index("batch_decisions_by_sale", "batch_decisions", ["sale_id"])


def outbox() -> None:
    op.create_table(
        "outbox",
        sa.Column("seq", sequence(), primary_key=True, autoincrement=True),
        sa.Column("event_id", bytewise(255), nullable=False, unique=True),
        sa.Column("type", word(48), nullable=False),
        sa.Column("sale_id", bytewise(48), nullable=False),
        sa.Column("reservation_id", bytewise(96), nullable=False),
        sa.Column("body", json_text(), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("sent", sa.Boolean(), nullable=False),
        **INNODB,
    )
    op.create_index("outbox_unsent", "outbox", ["sent", "seq"])


def payments() -> None:
    op.create_table(
        "payments",
        sa.Column("id", bytewise(255), primary_key=True),
        sa.Column("sale_id", bytewise(255), nullable=False),
        sa.Column("reservation_id", bytewise(255), nullable=False),
        sa.Column("status", word(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("currency", word(8), nullable=False),
        sa.Column("outcome", word(), nullable=False),
        sa.Column("received_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("resolved_at_ms", sa.BigInteger(), nullable=True),
        **INNODB,
    )
    op.create_index("payments_by_outcome", "payments", ["outcome", "received_at_ms"])
    op.create_index("payments_by_reservation", "payments", ["reservation_id", "outcome"])
    op.create_index("payments_by_sale", "payments", ["sale_id", "status", "outcome"])


def refunds() -> None:
    op.create_table(
        "refunds",
        sa.Column("payment_id", bytewise(255), primary_key=True),
        sa.Column("sale_id", bytewise(255), nullable=False),
        sa.Column("reservation_id", bytewise(255), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("currency", word(8), nullable=False),
        sa.Column("reason", word(), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        **INNODB,
    )
    op.create_index("refunds_by_sale", "refunds", ["sale_id"])


def stock_movements() -> None:
    op.create_table(
        "stock_movements",
        sa.Column("seq", sequence(), primary_key=True, autoincrement=True),
        sa.Column("movement_key", bytewise(255), nullable=False, unique=True),
        sa.Column("sale_id", bytewise(48), sa.ForeignKey("sales.id"), nullable=False),
        sa.Column("kind", word(), nullable=False),
        sa.Column("delta", sa.BigInteger(), nullable=False),
        sa.Column("reservation_id", bytewise(96), nullable=True),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        **INNODB,
    )
    op.create_index("stock_movements_by_sale", "stock_movements", ["sale_id", "delta"])


def adjustments() -> None:
    op.create_table(
        "adjustments",
        sa.Column("id", bytewise(255), primary_key=True),
        sa.Column("sale_id", bytewise(48), sa.ForeignKey("sales.id"), nullable=False),
        sa.Column("delta", sa.BigInteger(), nullable=False),
        sa.Column("applied", sa.Boolean(), nullable=False),
        sa.Column("owed_epoch", sa.BigInteger(), nullable=True),
        sa.Column("owed_units", sa.BigInteger(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        **INNODB,
    )
    op.create_index("adjustments_by_sale", "adjustments", ["sale_id"])
    op.create_index("adjustments_unapplied", "adjustments", ["applied", "at_ms"])
    op.create_index("adjustments_owed", "adjustments", ["owed_epoch"])


def reviews() -> None:
    op.create_table(
        "reviews",
        sa.Column("id", bytewise(255), primary_key=True),
        sa.Column("sale_id", bytewise(48), sa.ForeignKey("sales.id"), nullable=False),
        sa.Column("reservation_id", bytewise(96), nullable=True),
        sa.Column("kind", word(48), nullable=False),
        sa.Column("detail", json_text(), nullable=False),
        sa.Column("opened_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("resolved_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("resolved_by", sa.String(255), nullable=True),
        sa.Column("resolution", word(), nullable=True),
        **INNODB,
    )
    op.create_index("reviews_by_resolution", "reviews", ["resolved_at_ms", "opened_at_ms"])


def audit() -> None:
    op.create_table(
        "audit",
        sa.Column("seq", sequence(), primary_key=True, autoincrement=True),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(255), nullable=False),
        sa.Column("act", word(64), nullable=False),
        sa.Column("subject", bytewise(255), nullable=False),
        sa.Column("why", json_text(), nullable=False),
        sa.Column("detail", json_text(), nullable=False),
        **INNODB,
    )
    op.create_index("audit_by_subject", "audit", ["subject", "seq"])


def leases() -> None:
    op.create_table(
        "leases",
        sa.Column("name", bytewise(255), primary_key=True),
        sa.Column("owner", bytewise(255), nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger(), nullable=False),
        **INNODB,
    )


def owed_effects() -> None:
    op.create_table(
        "owed_effects",
        sa.Column("reservation_id", bytewise(96), primary_key=True),
        sa.Column("sale_id", bytewise(48), sa.ForeignKey("sales.id"), nullable=False),
        sa.Column("segment", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("effect", word(), nullable=False),
        **INNODB,
    )
    op.create_index("owed_effects_by_epoch", "owed_effects", ["sale_id", "epoch"])


def api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", bytewise(255), primary_key=True),
        sa.Column("hash", bytewise(255), nullable=False, unique=True),
        sa.Column("role", word(), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        **INNODB,
    )


def replays() -> None:
    op.create_table(
        "replays",
        sa.Column("id", bytewise(255), primary_key=True),
        sa.Column("scope", json_text(), nullable=False),
        sa.Column("why", json_text(), nullable=False),
        sa.Column("actor", sa.String(255), nullable=False),
        sa.Column("more", sa.Boolean(), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("finished_at_ms", sa.BigInteger(), nullable=True),
        **INNODB,
    )


def replay_items() -> None:
    op.create_table(
        "replay_items",
        sa.Column("replay_id", bytewise(255), sa.ForeignKey("replays.id"), primary_key=True),
        sa.Column("position", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("message_id", bytewise(255), nullable=True),
        sa.Column("batch_id", bytewise(255), nullable=True),
        sa.Column("sale_id", bytewise(255), nullable=True),
        sa.Column("epoch", sa.BigInteger(), nullable=True),
        sa.Column("reservation_ids", json_text(), nullable=False),
        sa.Column("outcome", word(), nullable=False),
        sa.Column("why", json_text(), nullable=False),
        sa.Column("born_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("begun_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("ended_at_ms", sa.BigInteger(), nullable=True),
        **INNODB,
    )


def replay_claims() -> None:
    op.create_table(
        "replay_claims",
        sa.Column("message_id", bytewise(255), primary_key=True),
        sa.Column("replay_id", bytewise(255), nullable=False),
        sa.Column("claimed_at_ms", sa.BigInteger(), nullable=False),
        **INNODB,
    )
    op.create_index("replay_claims_by_time", "replay_claims", ["claimed_at_ms"])


TABLES = (
    sales,
    sale_epochs,
    orders,
    buyer_counters,
    batch_decisions,
    outbox,
    payments,
    refunds,
    stock_movements,
    adjustments,
    reviews,
    audit,
    leases,
    owed_effects,
    api_keys,
    replays,
    replay_items,
    replay_claims,
)


def upgrade() -> None:
    for create in TABLES:
        create()
