/* leader.pml: the authority's road sql -> loading -> redis -> sql, and the load (design 3.3).

   The loader reads the server's ids, takes one snapshot under the sale's row lock, settles in SQL what was owed to
   Redis up to its own epoch (the snapshot contains it), loads in chunks and stamps meta last. Each write names the ids
   read first and does nothing on another server, or once meta of this epoch exists.

   LOAD_IN_CHUNKS makes a step of each call of the load. A scenario leaves it out where Redis can only be lost before the load
   begins: until the stamp no script sees the new keys, so nothing can tell the difference, and the search is smaller.

   Accidents a scenario may switch on:
     LOAD_CALL_LATE   one load call times out, and lands whenever it likes
     UNLINK_IN_STEPS  the older keys go one by one instead of with the first write
     REDIS_GOES_AWAY  while loading, for ever
     LEADERS 2        a second leader takes over in the middle; the first one is only paused and goes on */

#ifdef WITHOUT_STICKY_LOSS
#define LOSS_KNOWN (!IS_SAME_REDIS(sale_epoch))
#else
#define LOSS_KNOWN (loss_reported || !IS_SAME_REDIS(sale_epoch))
#endif

#ifdef WITHOUT_LOADERS_IDS
#define SERVER_AS_SEEN(run_id, repl_id) (!redis_gone)
#else
#ifdef WITHOUT_RUN_ID
#define RUN_ID_AS_SEEN(run_id) true
#else
#define RUN_ID_AS_SEEN(run_id) (server_run_id == run_id)
#endif
#ifdef WITHOUT_REPLICATION_ID
#define REPL_ID_AS_SEEN(repl_id) true
#else
#define REPL_ID_AS_SEEN(repl_id) (server_repl_id == repl_id)
#endif
#define SERVER_AS_SEEN(run_id, repl_id) (RUN_ID_AS_SEEN(run_id) && REPL_ID_AS_SEEN(repl_id) && !redis_gone)
#endif

#if defined(WITHOUT_LOAD_GUARD) || defined(WITHOUT_STAMP_LAST)   /* an early stamp needs a load that writes on after it */
#define NOT_STAMPED(epoch) true
#else
#define NOT_STAMPED(epoch) (meta_epoch != (epoch))
#endif

#if LEADERS > 1
#define LOAD_ATTEMPT_BOUND 3
byte load_attempts;
#define MAY_LOAD (load_attempts < LOAD_ATTEMPT_BOUND)
#else
#define MAY_LOAD true
#endif

inline leave_redis() {                                             /* redis -> sql, or a load given up */
  sale_authority = sql_decides; sale_epoch++; loss_reported = 0; change_planned = 0
}

#ifdef WITHOUT_SETTLING_OWN_EPOCH
#define SETTLED_BY_LOAD(owed, epoch) ((owed) < (epoch))
#else
#define SETTLED_BY_LOAD(owed, epoch) ((owed) <= (epoch))
#endif
inline settle_owed(epoch) {
  if
  :: SETTLED_BY_LOAD(owed_epoch[0], epoch) -> owed_epoch[0] = 0; owed_write_off[0] = 0
  :: else
  fi;
  if
  :: SETTLED_BY_LOAD(owed_epoch[1], epoch) -> owed_epoch[1] = 0; owed_write_off[1] = 0
  :: else
  fi
#if defined(ADJUST_UP) || defined(ADJUST_DOWN)
  ;
  if
  :: SETTLED_BY_LOAD(adjustment_owed_epoch, epoch) -> adjustment_owed_epoch = 0
  :: else
  fi
#endif
}

/* A write creates this epoch's keys; the older epoch's keys have gone. */
inline enter_own_keys(epoch) {
  if
  :: keys_epoch < epoch ->
     keys_epoch = epoch; meta_epoch = 0;
     forget_slot()
#if defined(ADJUST_UP) || defined(ADJUST_DOWN)
     ; slot_adjustment = not_asked
#endif
  :: else
  fi
}
#define ROW_LIVE(row) (row == awaiting_payment || row == paid)
#define LOADED_BY_NOBODY 15                                        /* a loaded record belongs to no batch */
inline load_record(reservation) {
  if
  :: ROW_LIVE(seen_row[reservation]) ->
     slot_record[reservation] = confirmed; slot_record_batch[reservation] = LOADED_BY_NOBODY;
     slot_bought[BUYER_OF(reservation)]++
  :: seen_row[reservation] != no_order && !ROW_LIVE(seen_row[reservation]) ->
     slot_record[reservation] = ended; slot_record_batch[reservation] = LOADED_BY_NOBODY
  :: else
  fi
}
inline load_records(epoch) {
  if
  :: keys_epoch == epoch && NOT_STAMPED(epoch) ->
     slot_bought[0] = 0; slot_bought[1] = 0;
     load_record(RESERVATION_A); load_record(RESERVATION_B);
     slot_closed = sale_closed
  :: else
  fi
}
inline load_stock(epoch, available, granted) {
  if
  :: keys_epoch == epoch && NOT_STAMPED(epoch) -> slot_available = available; slot_granted = granted
  :: else
  fi
}
inline stamp_meta(epoch) {
  if
  :: keys_epoch == epoch -> meta_epoch = epoch; meta_run_id = server_run_id; meta_repl_id = server_repl_id
  :: else
  fi
}

#ifdef LOAD_CALL_LATE
proctype LateLoadCall(byte epoch; byte run_id; byte repl_id; byte available; byte granted) {
  if
  :: skip
  :: atomic {
       true;
       if
       :: SERVER_AS_SEEN(run_id, repl_id) -> load_stock(epoch, available, granted)
       :: else
       fi
     }
  fi;
  atomic { epoch = 0; run_id = 0; repl_id = 0; available = 0; granted = 0 }
}
#endif

proctype Leader() {
  byte epoch, run_id, repl_id, seen_available;
  mtype:order_t seen_row[2] = no_order;
look:
  atomic { epoch = 0; run_id = 0; repl_id = 0; seen_available = 0; seen_row[0] = no_order; seen_row[1] = no_order }
  atomic {                                                         /* every change is a compare-and-set on the sale's row */
    if
#ifdef WITHOUT_META_TAKEN_FIRST
    :: sale_authority == redis_decides && (change_planned || LOSS_KNOWN) -> leave_redis(); goto look
#else
    /* Where Redis still answers (a planned change, a false alarm), meta goes first: the change is a loss made on purpose,
       and no process that slept through it can find the dead epoch's keys in order and tell 202 from them. */
    :: sale_authority == redis_decides && IS_SAME_REDIS(sale_epoch) && (change_planned || LOSS_KNOWN) -> meta_epoch = 0; goto look
    :: sale_authority == redis_decides && !IS_SAME_REDIS(sale_epoch) -> leave_redis(); goto look
#endif
#ifdef SELLS_ON_SQL
    :: sale_authority == sql_decides && !sells_on_sql && MAY_LOAD -> sells_on_sql = 1; goto look
#endif
#ifndef WITHOUT_LOADING_FAILS_TO_SQL
    :: sale_authority == loading && redis_gone -> leave_redis(); goto look
#endif
    :: sale_authority != redis_decides && MAY_LOAD && !redis_gone ->
#ifdef WITHOUT_EPOCH_PER_ATTEMPT
       if
       :: sale_authority == sql_decides -> sale_epoch++
       :: else
       fi;
#else
       sale_epoch++;
#endif
       sale_authority = loading; sells_on_sql = 0;
       epoch = sale_epoch; run_id = server_run_id; repl_id = server_repl_id
#if LEADERS > 1
       ; load_attempts++
#endif
    fi;
    assert(sale_epoch < EPOCH_BOUND)                               /* the scenario's own bound: an error, never a cut */
  }
#ifdef WITHOUT_ONE_SNAPSHOT
  seen_available = sale_available;
  atomic { seen_row[0] = order_row[0]; seen_row[1] = order_row[1]; settle_owed(epoch) }
#else
  atomic {
    if
    :: sale_epoch != epoch || sale_authority != loading -> goto look
    :: else ->
       settle_owed(epoch);
       seen_available = sale_available; seen_row[0] = order_row[0]; seen_row[1] = order_row[1]
    fi
  }
#endif
#ifdef UNLINK_IN_STEPS
  atomic {
    if
    :: keys_epoch < epoch && SERVER_AS_SEEN(run_id, repl_id) ->
#ifdef WITHOUT_META_UNLINKED_FIRST
       slot_record[0] = no_record; slot_record[1] = no_record; slot_winners[0] = 0; slot_losers[0] = 0
#else
       meta_epoch = 0
#endif
    :: else
    fi
  }
#endif
#ifdef WITHOUT_STAMP_LAST
  atomic {
    if
    :: !SERVER_AS_SEEN(run_id, repl_id) -> goto look
    :: else -> enter_own_keys(epoch); stamp_meta(epoch)
    fi
  }
#endif
#ifdef LOAD_IN_CHUNKS
  atomic {                                                         /* chunk 1: records and buyer counters */
    if
    :: !SERVER_AS_SEEN(run_id, repl_id) -> goto look
    :: else -> enter_own_keys(epoch); load_records(epoch)
    fi
  }
  atomic {                                                         /* chunk 2: stock */
    if
    :: !SERVER_AS_SEEN(run_id, repl_id) -> goto look
    :: else ->
       enter_own_keys(epoch);
       load_stock(epoch, seen_available, seen_available + ROW_LIVE(seen_row[0]) + ROW_LIVE(seen_row[1]));
#ifdef LOAD_CALL_LATE
       run LateLoadCall(epoch, run_id, repl_id, seen_available, seen_available + ROW_LIVE(seen_row[0]) + ROW_LIVE(seen_row[1]))
#endif
    fi
  }
  atomic {                                                         /* the stamp */
    if
    :: !SERVER_AS_SEEN(run_id, repl_id) -> goto look
    :: else ->
       enter_own_keys(epoch); stamp_meta(epoch);
       keep_old_copy()
    fi
  }
#else
  atomic {                                                         /* all chunks and the stamp */
    if
    :: !SERVER_AS_SEEN(run_id, repl_id) -> goto look
    :: else ->
       enter_own_keys(epoch); load_records(epoch);
       load_stock(epoch, seen_available, seen_available + ROW_LIVE(seen_row[0]) + ROW_LIVE(seen_row[1]));
       stamp_meta(epoch);
       keep_old_copy()
    fi
  }
#endif
  atomic {
    if
    :: sale_epoch == epoch && sale_authority == loading -> sale_authority = redis_decides; loss_reported = 0
    :: else
    fi
  }
  goto look
}
