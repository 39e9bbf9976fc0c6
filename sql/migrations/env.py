"""Alembic's entry: the connection, or the dialect to render for, comes from service/adapters/sql/migrate.py."""

from alembic import context

options = context.config.attributes

if context.is_offline_mode():
    context.configure(
        dialect_name=options["dialect"],
        output_buffer=options["output"],
        literal_binds=True,
        transactional_ddl=False,
    )
    context.run_migrations()
else:
    context.configure(connection=options["connection"], transactional_ddl=False)
    context.run_migrations()
