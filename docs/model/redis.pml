/* redis.pml: the Lua scripts. Each inline is one call and runs inside one atomic step of its caller.

   peek, reserve and resolve of design sections 3.1 and 3.2, confirm of 3.4, end of 3.5. (load is in leader.pml,
   adjust in adjustments.pml.) reserve leaves its answer in the caller's variables
   reply, winners, losers and decided_elsewhere (sets of candidates).

   Every script first asks: is this the same Redis (state.pml, IS_SAME_REDIS)? Absent or different means lost: nothing is
   written, nothing is concluded. */

#ifdef WITHOUT_LIMIT_IN_REDIS
#define REDIS_LIMIT_REACHED(reservation) false
#else
#define REDIS_LIMIT_REACHED(reservation) (slot_bought[BUYER_OF(reservation)] >= LIMIT_PER_BUYER)
#endif

/* A process that meets `lost` reports it into the sale's row (here in the same step as the call). */
inline report_loss(epoch) {
  if
  :: sale_authority == redis_decides && sale_epoch == epoch -> loss_reported = 1
  :: else
  fi
}

inline forget_slot() {
  slot_available = 0; slot_granted = 0; slot_bought[0] = 0; slot_bought[1] = 0;
  slot_record[0] = no_record; slot_record[1] = no_record; slot_record_batch[0] = 0; slot_record_batch[1] = 0;
  slot_fences = 0; slot_closed = 0; slot_winners[0] = 0; slot_losers[0] = 0;
#if ATTEMPTS > 1
  slot_winners[1] = 0; slot_losers[1] = 0;
#endif
#if ATTEMPTS > 2
  slot_winners[2] = 0; slot_losers[2] = 0
#endif
}

/* ---- reserve.lua ---- */

/* One candidate. `again`: an older epoch's candidate, reserved again by the order consumer (3.3); it does not look
   at the closed mark, and writes `ended` for what it refuses or finds past the deadline, before the row is written. */
inline reserve_candidate(batch, reservation, candidates, again, past_deadline) {
  if
  :: !(candidates & SET_OF(reservation))
  :: else ->
     if
     :: slot_record[reservation] != no_record ->                        /* already decided: never a second unit */
        if
        :: slot_record_batch[reservation] == batch && slot_record[reservation] != ended ->
           winners = winners | SET_OF(reservation)
        :: slot_record_batch[reservation] == batch && slot_record[reservation] == ended && again ->
           losers = losers | SET_OF(reservation)                        /* a crash came between `ended` and the row */
        :: else -> decided_elsewhere = decided_elsewhere | SET_OF(reservation)
        fi
     :: else ->
        if
        :: past_deadline || (slot_closed && !again) || REDIS_LIMIT_REACHED(reservation) || slot_available == 0 ->
           losers = losers | SET_OF(reservation);
#ifndef WITHOUT_ENDED_RECORD
           if
           :: again -> slot_record[reservation] = ended; slot_record_batch[reservation] = batch
           :: else
           fi
#endif
        :: else ->
           slot_available--; slot_bought[BUYER_OF(reservation)]++;
           slot_record[reservation] = queued; slot_record_batch[reservation] = batch;
           winners = winners | SET_OF(reservation);
           assert(!ORDER_FINAL(reservation))                            /* I7: no stock for an id that has ended */
        fi
     fi
  fi
}

#ifdef WITHOUT_LOSERS_RECORDED
#define REPLAYS(batch) (slot_winners[batch] != 0)
#else
#define REPLAYS(batch) BATCH_DECIDED(batch)
#endif

inline reserve_script(batch, epoch, candidates, again, past_deadline) {
  d_step {
  winners = NOBODY; losers = NOBODY; decided_elsewhere = NOBODY;
  if
  :: !IS_SAME_REDIS(epoch) -> reply = lost
  :: IS_SAME_REDIS(epoch) && BATCH_FENCED(batch) -> reply = fenced
  :: IS_SAME_REDIS(epoch) && !BATCH_FENCED(batch) && REPLAYS(batch) ->  /* a batch is decided once */
     reply = decided;
     winners = slot_winners[batch]; losers = slot_losers[batch];
     decided_elsewhere = candidates & ~(winners | losers)
  :: else ->
     reply = decided;
     reserve_candidate(batch, RESERVATION_A, candidates, again, past_deadline);
     reserve_candidate(batch, RESERVATION_B, candidates, again, past_deadline);
     slot_winners[batch] = winners; slot_losers[batch] = losers
  fi;
  check_redis(epoch)
  }
}

/* ---- resolve.lua: read or fence, atomically. Leaves its answer in `verdict`. ---- */
inline resolve_script(batch, epoch) {
  d_step {
  if
  :: !IS_SAME_REDIS(epoch) ->
     report_loss(epoch);
#ifdef WITHOUT_LOST_IS_UNKNOWN
     verdict = answer_rollback
#else
     verdict = answer_unknown
#endif
  :: IS_SAME_REDIS(epoch) && slot_winners[batch] != 0 -> verdict = answer_commit
  :: IS_SAME_REDIS(epoch) && slot_winners[batch] == 0 && slot_losers[batch] != 0 -> verdict = answer_rollback
  :: else ->
#ifndef WITHOUT_FENCE
     slot_fences = slot_fences | (1 << batch);
#endif
     verdict = answer_rollback
  fi
  }
}

/* ---- end.lua(id, return | write_off). Leaves its answer in `reply`. ---- */
inline end_script(reservation, epoch, write_off) {
  d_step {
  if
  :: !IS_SAME_REDIS(epoch) -> reply = lost
  :: IS_SAME_REDIS(epoch) && RECORD_HOLDS(reservation) ->
     reply = decided; slot_record[reservation] = ended; slot_bought[BUYER_OF(reservation)]--;
     if
     :: write_off -> slot_granted--                                     /* SQL was short: not to be sold again for ever */
     :: else -> slot_available++
     fi
  :: else ->
     reply = decided; slot_record[reservation] = ended
#ifdef WITHOUT_END_GUARD
     ; slot_available++
#endif
  fi;
  check_redis(epoch)
  }
}

/* ---- confirm.lua: an order row exists; the unit is no longer merely queued. A final row ends the record. ---- */
inline confirm_script(reservation, chosen, epoch) {
  d_step {
  if
  :: (chosen & SET_OF(reservation)) && IS_SAME_REDIS(epoch) && slot_record[reservation] == queued && ORDER_LIVE(reservation) ->
     slot_record[reservation] = confirmed
  :: (chosen & SET_OF(reservation)) && IS_SAME_REDIS(epoch) && slot_record[reservation] == queued && ORDER_FINAL(reservation) ->
     slot_record[reservation] = ended; slot_bought[BUYER_OF(reservation)]--;
     if
     :: owed_write_off[reservation] -> slot_granted--
     :: else -> slot_available++
     fi
  :: else
  fi
  }
}
