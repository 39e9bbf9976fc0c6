-- Dropgate, schema 0001, for mysql. Rendered from sql/migrations: do not edit.

CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

CREATE TABLE sales (
    id VARBINARY(48) NOT NULL,
    sku VARCHAR(255) NOT NULL,
    price BIGINT NOT NULL,
    currency VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    limit_per_buyer BIGINT NOT NULL,
    opens_at_ms BIGINT,
    closes_at_ms BIGINT,
    payment_window_s INTEGER NOT NULL,
    queue_deadline_s INTEGER NOT NULL,
    on_redis_loss VARCHAR(24) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    wanted_authority VARCHAR(24) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    wanted_segments INTEGER NOT NULL,
    status VARCHAR(24) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    status_at_ms BIGINT NOT NULL,
    authority VARCHAR(24) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    epoch BIGINT NOT NULL,
    epoch_started_at_ms BIGINT NOT NULL,
    segments INTEGER NOT NULL,
    initial BIGINT NOT NULL,
    adjusted BIGINT NOT NULL,
    available BIGINT NOT NULL,
    wants_redis BOOL NOT NULL,
    sold_in_epoch BOOL NOT NULL,
    older_deadline_ms BIGINT,
    lost_run_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin,
    lost_replid VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin,
    lost_at_ms BIGINT,
    created_at_ms BIGINT NOT NULL,
    PRIMARY KEY (id)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX sales_by_status ON sales (status, status_at_ms);

CREATE INDEX sales_by_authority ON sales (authority);

CREATE TABLE sale_epochs (
    sale_id VARBINARY(48) NOT NULL,
    epoch BIGINT NOT NULL,
    ended_at_ms BIGINT NOT NULL,
    deadline_ms BIGINT NOT NULL,
    segments INTEGER NOT NULL,
    unlink_at_ms BIGINT,
    PRIMARY KEY (sale_id, epoch),
    FOREIGN KEY(sale_id) REFERENCES sales (id)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX sale_epochs_by_unlink ON sale_epochs (unlink_at_ms);

CREATE TABLE orders (
    id VARBINARY(96) NOT NULL,
    sale_id VARBINARY(48) NOT NULL,
    buyer_id VARBINARY(512) NOT NULL,
    batch_id VARBINARY(255),
    segment INTEGER NOT NULL,
    epoch BIGINT NOT NULL,
    quantity BIGINT NOT NULL,
    status VARCHAR(24) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    reason VARCHAR(24) CHARACTER SET ascii COLLATE ascii_bin,
    order_no VARBINARY(255),
    amount BIGINT NOT NULL,
    currency VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    fingerprint VARBINARY(255) NOT NULL,
    coupon_code VARCHAR(255),
    metadata MEDIUMTEXT,
    created_at_ms BIGINT NOT NULL,
    ordered_at_ms BIGINT NOT NULL,
    expires_at_ms BIGINT,
    window_extended BOOL NOT NULL,
    paid_by VARBINARY(255),
    restocked BOOL NOT NULL,
    version BIGINT NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(sale_id) REFERENCES sales (id)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX orders_by_batch ON orders (batch_id);

CREATE INDEX orders_by_buyer ON orders (sale_id, buyer_id, created_at_ms);

CREATE INDEX orders_by_expiry ON orders (status, expires_at_ms);

CREATE TABLE buyer_counters (
    sale_id VARBINARY(48) NOT NULL,
    buyer_id VARBINARY(512) NOT NULL,
    units BIGINT NOT NULL,
    PRIMARY KEY (sale_id, buyer_id),
    FOREIGN KEY(sale_id) REFERENCES sales (id)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE batch_decisions (
    batch_id VARBINARY(255) NOT NULL,
    sale_id VARBINARY(48) NOT NULL,
    losers MEDIUMTEXT NOT NULL,
    decided_at_ms BIGINT NOT NULL,
    PRIMARY KEY (batch_id),
    FOREIGN KEY(sale_id) REFERENCES sales (id)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX batch_decisions_by_sale ON batch_decisions (sale_id);

CREATE TABLE outbox (
    seq BIGINT NOT NULL AUTO_INCREMENT,
    event_id VARBINARY(255) NOT NULL,
    type VARCHAR(48) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    sale_id VARBINARY(48) NOT NULL,
    reservation_id VARBINARY(96) NOT NULL,
    body MEDIUMTEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    sent BOOL NOT NULL,
    PRIMARY KEY (seq),
    UNIQUE (event_id)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX outbox_unsent ON outbox (sent, seq);

CREATE TABLE payments (
    id VARBINARY(255) NOT NULL,
    sale_id VARBINARY(255) NOT NULL,
    reservation_id VARBINARY(255) NOT NULL,
    status VARCHAR(24) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    amount BIGINT NOT NULL,
    currency VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    outcome VARCHAR(24) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    received_at_ms BIGINT NOT NULL,
    resolved_at_ms BIGINT,
    PRIMARY KEY (id)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX payments_by_outcome ON payments (outcome, received_at_ms);

CREATE INDEX payments_by_reservation ON payments (reservation_id, outcome);

CREATE INDEX payments_by_sale ON payments (sale_id, status, outcome);

CREATE TABLE refunds (
    payment_id VARBINARY(255) NOT NULL,
    sale_id VARBINARY(255) NOT NULL,
    reservation_id VARBINARY(255) NOT NULL,
    amount BIGINT NOT NULL,
    currency VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    reason VARCHAR(24) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    created_at_ms BIGINT NOT NULL,
    PRIMARY KEY (payment_id)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX refunds_by_sale ON refunds (sale_id);

CREATE TABLE stock_movements (
    seq BIGINT NOT NULL AUTO_INCREMENT,
    movement_key VARBINARY(255) NOT NULL,
    sale_id VARBINARY(48) NOT NULL,
    kind VARCHAR(24) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    delta BIGINT NOT NULL,
    reservation_id VARBINARY(96),
    at_ms BIGINT NOT NULL,
    PRIMARY KEY (seq),
    UNIQUE (movement_key),
    FOREIGN KEY(sale_id) REFERENCES sales (id)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX stock_movements_by_sale ON stock_movements (sale_id, delta);

CREATE TABLE adjustments (
    id VARBINARY(255) NOT NULL,
    sale_id VARBINARY(48) NOT NULL,
    delta BIGINT NOT NULL,
    applied BOOL NOT NULL,
    owed_epoch BIGINT,
    owed_units BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(sale_id) REFERENCES sales (id)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX adjustments_by_sale ON adjustments (sale_id);

CREATE INDEX adjustments_unapplied ON adjustments (applied, at_ms);

CREATE INDEX adjustments_owed ON adjustments (owed_epoch);

CREATE TABLE reviews (
    id VARBINARY(255) NOT NULL,
    sale_id VARBINARY(48) NOT NULL,
    reservation_id VARBINARY(96),
    kind VARCHAR(48) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    detail MEDIUMTEXT NOT NULL,
    opened_at_ms BIGINT NOT NULL,
    resolved_at_ms BIGINT,
    resolved_by VARCHAR(255),
    resolution VARCHAR(24) CHARACTER SET ascii COLLATE ascii_bin,
    PRIMARY KEY (id),
    FOREIGN KEY(sale_id) REFERENCES sales (id)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX reviews_by_resolution ON reviews (resolved_at_ms, opened_at_ms);

CREATE TABLE audit (
    seq BIGINT NOT NULL AUTO_INCREMENT,
    at_ms BIGINT NOT NULL,
    actor VARCHAR(255) NOT NULL,
    act VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    subject VARBINARY(255) NOT NULL,
    why MEDIUMTEXT NOT NULL,
    detail MEDIUMTEXT NOT NULL,
    PRIMARY KEY (seq)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX audit_by_subject ON audit (subject, seq);

CREATE TABLE leases (
    name VARBINARY(255) NOT NULL,
    owner VARBINARY(255) NOT NULL,
    expires_at_ms BIGINT NOT NULL,
    PRIMARY KEY (name)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE owed_effects (
    reservation_id VARBINARY(96) NOT NULL,
    sale_id VARBINARY(48) NOT NULL,
    segment INTEGER NOT NULL,
    epoch BIGINT NOT NULL,
    effect VARCHAR(24) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    PRIMARY KEY (reservation_id),
    FOREIGN KEY(sale_id) REFERENCES sales (id)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX owed_effects_by_epoch ON owed_effects (sale_id, epoch);

CREATE TABLE api_keys (
    id VARBINARY(255) NOT NULL,
    hash VARBINARY(255) NOT NULL,
    `role` VARCHAR(24) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    created_at_ms BIGINT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (hash)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE replays (
    id VARBINARY(255) NOT NULL,
    scope MEDIUMTEXT NOT NULL,
    why MEDIUMTEXT NOT NULL,
    actor VARCHAR(255) NOT NULL,
    more BOOL NOT NULL,
    created_at_ms BIGINT NOT NULL,
    finished_at_ms BIGINT,
    PRIMARY KEY (id)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE replay_items (
    replay_id VARBINARY(255) NOT NULL,
    position INTEGER NOT NULL,
    message_id VARBINARY(255),
    batch_id VARBINARY(255),
    sale_id VARBINARY(255),
    epoch BIGINT,
    reservation_ids MEDIUMTEXT NOT NULL,
    outcome VARCHAR(24) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    why MEDIUMTEXT NOT NULL,
    born_at_ms BIGINT,
    begun_at_ms BIGINT,
    ended_at_ms BIGINT,
    PRIMARY KEY (replay_id, position),
    FOREIGN KEY(replay_id) REFERENCES replays (id)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE replay_claims (
    message_id VARBINARY(255) NOT NULL,
    replay_id VARBINARY(255) NOT NULL,
    claimed_at_ms BIGINT NOT NULL,
    PRIMARY KEY (message_id)
)ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX replay_claims_by_time ON replay_claims (claimed_at_ms);

INSERT INTO alembic_version (version_num) VALUES ('0001');
