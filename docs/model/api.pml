/* api.pml: POST reservations (design 3.1). One process is one attempt and its batch. It may be paused between any two
   steps (that is what interleaving means) and may die where a branch says so. */

#ifdef WITHOUT_REPLAY_IN_PEEK
#define PEEK_REPLAYS false
#else
#define PEEK_REPLAYS true
#endif
inline peek_candidate(batch, reservation, epoch) {                 /* step 3; answered ids leave the set `candidates` */
  if
  :: !(candidates & SET_OF(reservation))
  :: (candidates & SET_OF(reservation)) && RECORD_HOLDS(reservation) && PEEK_REPLAYS ->
     tell_queued(batch, reservation, epoch); candidates = candidates - SET_OF(reservation)
  :: (candidates & SET_OF(reservation)) && slot_record[reservation] == ended ->
     tell_stored_state(batch, reservation); candidates = candidates - SET_OF(reservation)
  :: (candidates & SET_OF(reservation)) && (slot_record[reservation] == no_record || !PEEK_REPLAYS) && (slot_available == 0 || REDIS_LIMIT_REACHED(reservation)) ->
     candidates = candidates - SET_OF(reservation);
     tell_refused(batch, reservation, epoch)
  :: else
  fi
}

/* While SQL decides, a batch goes straight to the order transaction. A refusal binds no key, so it leaves no row. */
inline straight_to_sql(batch, reservation, epoch) {
  if
  :: !(candidates & SET_OF(reservation))
  :: (candidates & SET_OF(reservation)) && ORDER_LIVE(reservation) -> tell_queued(batch, reservation, epoch)
  :: (candidates & SET_OF(reservation)) && ORDER_FINAL(reservation) -> tell_stored_state(batch, reservation)
  :: (candidates & SET_OF(reservation)) && order_row[reservation] == no_order ->
     if
     :: sale_available > 0 && !SQL_LIMIT_REACHED(reservation) ->
        insert_live(batch, reservation);
        tell_queued(batch, reservation, epoch)
     :: else -> tell_refused(batch, reservation, epoch)
     fi
  fi
}

inline tell_winner(batch, reservation, epoch) {
  if
  :: (winners | decided_elsewhere) & SET_OF(reservation) ->
     if
     :: RECORD_HOLDS(reservation) -> tell_queued(batch, reservation, epoch)
     :: else -> tell_stored_state(batch, reservation)
     fi
  :: else
  fi
}
inline tell_losers(batch, epoch) {
  if
  :: losers & JUST_A -> tell_refused(batch, RESERVATION_A, epoch)
  :: else
  fi;
  if
  :: losers & JUST_B -> tell_refused(batch, RESERVATION_B, epoch)
  :: else
  fi
}

#ifdef WITHOUT_DECISION_EPOCH
#define MAY_DECIDE(epoch) true
#else
#define MAY_DECIDE(epoch) (sale_epoch == epoch)
#endif

#ifdef RESERVE_RUNS_TWICE
/* A library repeats the call on its own; the reply goes nowhere. */
proctype RepeatedReserveCall(byte batch; byte epoch; byte candidates) {
  byte winners, losers, decided_elsewhere; mtype:reply_t reply = lost;
  if
  :: skip
  :: atomic { true; reserve_script(batch, epoch, candidates, 0, 0) }
  fi;
  atomic { winners = 0; losers = 0; decided_elsewhere = 0; reply = lost; epoch = 0; candidates = 0; batch = 0 }
}
#endif

proctype Api(byte batch) {
  byte epoch, candidates, winners, losers, decided_elsewhere;
  mtype:reply_t reply = lost;
  bit timed_out, on_sql, earlier_attempt_open;

#ifdef RETRY_OF_FIRST
  if
  :: batch == 1 -> attempt_started[0]                              /* a retry may overlap its first attempt, not precede it */
  :: else
  fi;
#endif
  atomic {                                                         /* step 1: the gate. The row is read here and may be stale afterwards */
    attempt_started[batch] = 1; candidates = ASKED_BY(batch);
    epoch = sale_epoch; batch_epoch[batch] = epoch;
    earlier_attempt_open = (EARLIER_UNANSWERED(batch, RESERVATION_A) || EARLIER_UNANSWERED(batch, RESERVATION_B));
    asks_again(candidates);
    if
    :: sale_authority == redis_decides
    :: sale_authority == sql_decides && sells_on_sql -> on_sql = 1
    :: else -> goto over                                           /* 503 */
    fi
  }
#ifdef SELLS_ON_SQL
  if
  :: on_sql ->
     atomic {
       if
       :: !(sale_authority == sql_decides && sale_epoch == epoch)  /* 503 */
       :: else ->
          straight_to_sql(batch, RESERVATION_A, epoch); straight_to_sql(batch, RESERVATION_B, epoch);
          check_sql()
       fi;
       goto over
     }
  :: else
  fi;
#endif
  atomic {                                                         /* step 3: peek.lua */
    if
    :: !IS_SAME_REDIS(epoch) -> report_loss(epoch); goto over
    :: else ->
       peek_candidate(batch, RESERVATION_A, epoch); peek_candidate(batch, RESERVATION_B, epoch);
       if
       :: candidates == NOBODY -> goto over
       :: else
       fi
    fi
  }
  if                                                               /* step 4: half message */
  :: goto over                                                     /* dies */
  :: atomic {
       true; send_half(batch, candidates);
#ifdef DEADLINE_FROM_MESSAGE_TIME
       half_sent_epoch[batch] = sale_epoch
#endif
     }
  fi;
  if                                                               /* step 5: reserve.lua */
  :: goto over
  :: atomic {
       true;
       if
       :: timed_out = 1                                            /* the caller has given up; the call lands whenever this step is taken */
       :: skip
       fi;
       reserve_script(batch, epoch, candidates, 0, 0);
#ifdef RESERVE_RUNS_TWICE
       run RepeatedReserveCall(batch, epoch, candidates);
#endif
       if
       :: reply == lost -> report_loss(epoch)
       :: else
       fi;
       if
       :: timed_out -> winners = NOBODY; losers = NOBODY; decided_elsewhere = NOBODY; reply = lost;
#ifndef WITHOUT_TIMEOUT_IS_UNKNOWN
          goto over                                                /* 503; verdict UNKNOWN: it may have happened */
#endif
       :: else -> tell_winner(batch, RESERVATION_A, epoch); tell_winner(batch, RESERVATION_B, epoch)
       fi
#ifdef WITHOUT_CLOSED_IS_A_LOSER
       ;
       if
       :: slot_closed -> tell_losers(batch, epoch); losers = NOBODY
       :: else
       fi
#endif
     }
  fi;
  if
  :: losers != NOBODY ->                                           /* step 6: the decision row, before a loser is answered */
     if
     :: goto over
     :: atomic {
          true;
#ifdef WITHOUT_DECISION_ROW
          tell_losers(batch, epoch)
#else
          if
          :: MAY_DECIDE(epoch) ->
             decision_losers[batch] = losers;
             tell_losers(batch, epoch)
          :: else                                                  /* 503 */
          fi
#endif
        }
     fi
  :: else
  fi;
  if                                                               /* step 7: the verdict, off the reply path */
  :: goto over
  :: winners != NOBODY -> atomic { commit_half(batch) }
  :: winners == NOBODY -> atomic { rollback_half(batch) }
  fi;
over:
  atomic {
    epoch = 0; candidates = 0; winners = 0; losers = 0; decided_elsewhere = 0; reply = lost;
    timed_out = 0; on_sql = 0; earlier_attempt_open = 0
  }
}
