"""Orders and everything durable, by SQLAlchemy Core on MySQL, MariaDB or SQLite."""
