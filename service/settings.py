"""Every setting: `DROPGATE_*` in the environment, or the same names without prefix in dropgate.toml (environment wins).

Unset, everything runs on the embedded stack in the folder `home`. Times say their unit in their name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

SECRET_BYTES_MIN = 32
"""As long as the hash that it keys (SHA-256)."""

CLOCKS_APART_S = 20.0
"""What the clocks of a fleet, Redis's among them, may differ by at most."""


class Settings(BaseSettings):
    """All of a process's settings, checked at start."""

    model_config = SettingsConfigDict(env_prefix="DROPGATE_", toml_file="dropgate.toml", extra="forbid", frozen=True)

    home: Path = Path(".dropgate")
    """Folder of the embedded stack: database, broker file, Valkey's socket and data, development keys."""

    redis_url: str = "embedded"
    """`embedded`, or a server of yours: redis://user:password@host:port/db, unix:///path; or
    redis+sentinel://user:password@host:port,host:port/SERVICE/db, the master of a service that these Sentinels watch;
    with rediss in place of redis: by TLS."""
    database_url: str = "embedded"
    """`embedded` (SQLite in `home`), sqlite+aiosqlite:///PATH, or mysql+aiomysql://user:password@host:port/name."""
    broker_url: str = "embedded"
    """`embedded` (in `home`), embedded:PATH, rocketmq5://host:port of a RocketMQ 5 proxy's gRPC side, or
    rocketmq4://host:port of a name server, for the classic protocol; several of one cluster with `;` between."""
    rocketmq_nameserver: str | None = None
    """host:port;host:port. Topics, groups, backlog and discarded half messages are asked of the brokers behind it. With
    rocketmq4 the broker_url names it."""
    rocketmq_access_key: str | None = None
    """For clusters with access control (ACL); the same for the proxy, the name servers and the brokers."""
    rocketmq_secret_key: SecretStr | None = None
    """What belongs to the access key."""
    rocketmq_namespace: str | None = Field(default=None, pattern=r"^[a-zA-Z0-9_-]+$")
    """Put before all names of topics and groups, as `namespace%name`."""
    rocketmq_tls: bool = False
    """TLS to the proxy. rocketmq4 has none."""
    rocketmq_admin_tls: bool = False
    """TLS to name servers and brokers. rocketmq4 has none."""
    rocketmq_tls_ca: Path | None = None
    """A file of certificates to trust for both; unset: those that this machine trusts."""
    rocketmq_timeout_s: float = Field(default=3.0, ge=1, le=30)
    """How long a call to the proxy may take; a half message with all its attempts."""
    topic_prefix: str = "dropgate"

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    """0: a free port, named in the first line of the log."""

    payment_window_s: int = Field(default=900, ge=1, le=86_400)
    """How long an order waits for its payment, unless its sale says otherwise."""
    queue_deadline_s: int = Field(default=600, ge=1, le=86_400)
    """After this a reservation that could not become an order is rejected with `not_confirmed` (I5)."""

    batch_max: int = Field(default=128, ge=1, le=128)
    """Candidates a half message."""
    lanes: int = Field(default=4, ge=1, le=64)
    """Batches of one segment in flight at a time."""
    queue_max: int = Field(default=2_000, ge=1, le=100_000)
    """Requests of one segment that may wait for a batch: beyond it they are refused at once (429)."""
    queue_age_max_s: float = Field(default=2.0, gt=0, le=60)
    """A request that waited longer is refused, not served: its buyer's client has given up."""
    reply_timeout_s: float = Field(default=12.0, gt=0, le=60)
    """Longest time from a request to its answer; after it: 503 outcome_unknown. Longer than a transaction may live:
    under `sql` an answer then says what became of it."""

    redis_timeout_s: float = Field(default=1.0, gt=0, le=30)
    redis_connect_timeout_s: float = Field(default=1.0, gt=0, le=30)
    redis_pool_max: int = Field(default=32, ge=1, le=1_000)
    redis_tls_ca: Path | None = None
    """PEM file of the authorities to trust with rediss; unset: those of the system."""
    redis_tls_cert: Path | None = None
    """PEM file of the certificate that this process shows to Redis, where it asks for one."""
    redis_tls_key: Path | None = None
    """PEM file of its key; unset: it is in the certificate's file."""
    redis_tls_verify: bool = True
    """`false`: encrypted, but to whoever answers. For a trial only."""
    redis_sentinel_username: str | None = None
    """For Sentinels that want to know who asks: user and password in the URL are Redis's."""
    redis_sentinel_password: SecretStr | None = None
    """What belongs to it; alone where they have a password and no users."""
    sql_timeout_s: float = Field(default=5.0, gt=0, le=20)
    """How long a read or a free connection may take; a writing transaction has twice as long. The same in all processes
    of a fleet: a 404 after a loss of Redis counts on it."""
    sql_connect_timeout_s: float = Field(default=3.0, gt=0, le=60)
    database_tls: bool = False
    """Speak TLS to MySQL or MariaDB, and to nothing that does not: the server's certificate and name are verified."""
    database_tls_ca: Path | None = None
    """PEM file of the authorities to trust; unset: those of the system."""
    database_tls_cert: Path | None = None
    """PEM file of the certificate that this process shows, where the server asks for one."""
    database_tls_key: Path | None = None
    """PEM file of its key; unset: it is in the certificate's file."""
    database_tls_verify: bool = True
    """`false`: encrypted, but to whoever answers. For a trial only."""
    sql_pool_max: int = Field(default=8, ge=1, le=200)
    """Connections of one process for transactions. Six more are for reads and for its view of the sales."""

    transaction_timeout_s: float = Field(default=6.0, gt=0)
    """Embedded broker: the first check-back comes no earlier (RocketMQ's transactionTimeOut)."""
    transaction_check_interval_s: float = Field(default=30.0, gt=0)
    transaction_check_max: int = Field(default=15, ge=1)

    older_epoch_grace_s: float = Field(default=10.0, ge=0, le=60)
    """How long an older epoch's check-backs are answered UNKNOWN: winners' own messages come first (design §3.2)."""
    drain_timeout_s: float = Field(default=45.0, ge=0)
    """How long the leader waits for messages of an older epoch before it loads Redis again: the grace above, one check
    interval of the broker, and the delivery."""
    sweep_interval_s: float = Field(default=1.0, gt=0, le=60)
    """How often each of the keeper's loops looks."""
    sweep_after_s: float = Field(default=15.0, gt=0)
    """A decided batch without orders is older than this before the keeper takes it: its own message comes first."""
    retention_days: int = Field(default=7, ge=1, le=3_650)
    """After so many days sent events leave the outbox, and the losers of its batches a settled sale. The books (orders,
    money, audit, the ledger) stay."""
    stop_timeout_s: float = Field(default=10.0, gt=0, le=300)
    """From SIGTERM to the end of the process."""

    metrics_port: int | None = Field(default=None, ge=0, le=65535)
    """Where a process serves /metrics and /healthz, on `host`; then the API's port has no /metrics. Unset: the API's
    port has it, and a process without the API (consume, keeper) serves it nowhere."""
    http_connections_max: int = Field(default=10_000, ge=10, le=1_000_000)
    """Connections to the API of one process. Beyond it each request hears 503: below what the system lets a process
    open."""

    payment_secrets: Annotated[tuple[SecretStr, ...], NoDecode] = ()
    """Secrets that sign POST /v1/payments, comma-separated, 32 bytes or more each; several during a rotation."""
    payment_tolerance_s: int = Field(default=300, ge=1, le=3_600)
    jwt_secret: SecretStr | None = None
    """HS256 secret of buyers' tokens, 32 bytes or more; unset: buyers' tokens are refused."""
    jwt_audience: str | None = Field(default=None, min_length=1)
    """What `aud` of a buyer's token must name; unset: it is not looked at."""

    log_json: bool = True
    log_level: str = "INFO"

    @property
    def sql_transaction_timeout_s(self) -> float:
        """The longest that a transaction of orders lives: later it is rolled back, not committed."""
        return 2 * self.sql_timeout_s

    @property
    def not_found_margin_s(self) -> float:
        """A 404 comes this much after the deadline of older candidates: what read its clock before it has ended."""
        return self.sql_transaction_timeout_s + CLOCKS_APART_S

    @property
    def in_doubt_max_s(self) -> float:
        """I5: this long after all components are back, nothing may be in doubt."""
        return 60 + 2 * self.transaction_check_interval_s

    @field_validator("payment_secrets", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",")) if value.strip() else ()
        return value

    @field_validator("payment_secrets", "jwt_secret")
    @classmethod
    def _not_to_be_guessed(
        cls, value: tuple[SecretStr, ...] | SecretStr | None
    ) -> tuple[SecretStr, ...] | SecretStr | None:
        """Whoever knows one makes orders paid, or is any buyer; and each signature is a way to try one at leisure."""
        given = value if isinstance(value, tuple) else () if value is None else (value,)
        for secret in given:
            length = len(secret.get_secret_value().encode())
            if length < SECRET_BYTES_MIN:
                raise ValueError(
                    f"a secret has {length} bytes and needs {SECRET_BYTES_MIN}: `openssl rand -base64 32` makes one"
                )
        return value

    @model_validator(mode="after")
    def _tls_is_on_where_its_files_are_named(self) -> Self:
        if (named := self._tls_file("database_tls")) and not self.database_tls:
            raise ValueError(f"{named} is set and database_tls is not: nothing would be encrypted")
        if (named := self._tls_file("redis_tls")) and not self.redis_url.lower().startswith("rediss"):
            raise ValueError(f"{named} is set and redis_url is not rediss: nothing would be encrypted")
        return self

    def _tls_file(self, prefix: str) -> str | None:
        names = (f"{prefix}_{file}" for file in ("ca", "cert", "key"))
        return next((name for name in names if getattr(self, name) is not None), None)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        del dotenv_settings, file_secret_settings
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)
