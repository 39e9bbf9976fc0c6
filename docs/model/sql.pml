/* sql.pml: pieces of SQL transactions (design 3.3 to 3.5). A caller's atomic step around them is one transaction,
   and everything that moves stock has the sale's row locked: it starts over (STILL is false) if authority or epoch
   changed since the caller looked. */

#ifdef WITHOUT_ROW_LOCK
#define STILL(authority, epoch) true
#else
#define STILL(authority, epoch) (sale_authority == authority && sale_epoch == epoch)
#endif

#ifdef WITHOUT_LIMIT_IN_SQL
#define SQL_LIMIT_REACHED(reservation) false
#else
#define SQL_LIMIT_REACHED(reservation) (order_bought[BUYER_OF(reservation)] >= LIMIT_PER_BUYER)
#endif

/* An effect owed to Redis names the epoch read under the row lock. While SQL decides nothing is owed: the load will
   read the result. */
inline owe_release(reservation, write_off) {
  if
  :: sale_authority == sql_decides
  :: else -> owed_epoch[reservation] = sale_epoch; owed_write_off[reservation] = write_off
  fi
}

inline insert_live(batch, reservation) {
  sale_available--; order_bought[BUYER_OF(reservation)]++;
  order_row[reservation] = awaiting_payment; order_batch[reservation] = batch;
  assert(!told_never[reservation]);                          /* I7: a final 409 was told */
  assert(!told_unknown[reservation])                         /* I7: 404 said that it holds nothing and never will */
}

#ifdef WITHOUT_ID_DECIDES_ITSELF
#define NOT_YET_DECIDED(reservation) true
#else
#define NOT_YET_DECIDED(reservation) (order_row[reservation] == no_order)
#endif

/* A chosen candidate without a row gets one: accepted while stock and limit allow, else rejected. A unit that Redis
   gave and SQL does not have is written off; otherwise it returns. */
inline decide_order(batch, reservation, chosen, holds_unit) {
  if
  :: (chosen & SET_OF(reservation)) && NOT_YET_DECIDED(reservation) ->
     if
     :: sale_available > 0 && !SQL_LIMIT_REACHED(reservation) -> insert_live(batch, reservation)
     :: else ->
        order_row[reservation] = rejected; order_batch[reservation] = batch;
#ifdef WITHOUT_WRITE_OFF
        owe_release(reservation, 0)
#else
        owe_release(reservation, (holds_unit && sale_available == 0))
#endif
     fi
  :: else                                                    /* an id that has a row is decided by it */
  fi
}

inline reject_order(batch, reservation, chosen) {
  if
  :: (chosen & SET_OF(reservation)) && order_row[reservation] == no_order ->
     order_row[reservation] = rejected; order_batch[reservation] = batch;
     owe_release(reservation, 0)
  :: else
  fi
}

inline give_back_in_sql(reservation, final_state) {
  order_row[reservation] = final_state; sale_available++; order_bought[BUYER_OF(reservation)]--;
  owe_release(reservation, 0);
  check_sql()
}

/* ---- the queue deadline (3.3) of an older epoch's candidate: counted from the end of ITS epoch, by the one clock,
   inside the script or transaction. The other readings are kept as switches because each was once written down. ---- */
#if defined(WITHOUT_DEADLINE)
#define PAST_DEADLINE(batch) false
#elif defined(DEADLINE_FROM_LATEST_CHANGE)
#define PAST_DEADLINE(batch) (overdue_epoch >= sale_epoch - 1)
#elif defined(DEADLINE_FROM_MESSAGE_TIME)
#define PAST_DEADLINE(batch) (half_sent_epoch[batch] <= overdue_epoch)
#else
#define PAST_DEADLINE(batch) (batch_epoch[batch] <= overdue_epoch)
#endif
#ifdef DEADLINE_READ_EARLY
#define JUDGED_PAST_DEADLINE(batch) past_deadline_seen_before
#else
#define JUDGED_PAST_DEADLINE(batch) PAST_DEADLINE(batch)
#endif

#ifdef TIME_PASSES
proctype Clock() {
  do
  :: atomic { overdue_epoch + 1 < sale_epoch -> overdue_epoch++ }
  od
}
#endif
