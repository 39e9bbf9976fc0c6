"""Stock in Redis or Valkey, by the Lua scripts."""
