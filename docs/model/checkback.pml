/* checkback.pml: the answer to the broker's question (design 3.2). Stateless: any replica may answer, from the message
   and the stores. Nobody is asked about a batch that would only get UNKNOWN now; the broker asks again later. */

#define WORTH_ASKING(batch) (half_state[batch] == half_open && !(batch_epoch[batch] == sale_epoch && !IS_SAME_REDIS(sale_epoch)))
#define ORDER_OF_BATCH(batch, reservation) \
  (order_row[reservation] != no_order && order_batch[reservation] == batch && (half_candidates[batch] & SET_OF(reservation)))

#ifdef WITHOUT_OLDER_EPOCH_COMMIT
#define OF_OLDER_EPOCH(batch) false                                /* asks the current epoch's keys about a batch they never saw */
#else
#define OF_OLDER_EPOCH(batch) (batch_epoch[batch] < sale_epoch)
#endif

proctype CheckBack() {
  byte batch, epoch;
  mtype:verdict_t verdict = answer_unknown;
asked:
  atomic {
    if
    :: WORTH_ASKING(0) -> batch = 0
#if ATTEMPTS > 1
    :: WORTH_ASKING(1) -> batch = 1
#endif
#if ATTEMPTS > 2
    :: WORTH_ASKING(2) -> batch = 2
#endif
    fi;
    if
    :: OF_OLDER_EPOCH(batch) -> verdict = answer_commit    /* older epoch: COMMIT without asking Redis; the candidate must end in a row */
    :: else -> epoch = sale_epoch
    fi
  }
  if
  :: verdict == answer_commit
  :: else ->
#ifndef WITHOUT_SQL_BEFORE_RESOLVE
     atomic {                                                      /* SQL first: a decision, or an order of this batch */
       if
       :: decision_losers[batch] != NOBODY ->
          if
          :: decision_losers[batch] == half_candidates[batch] -> verdict = answer_rollback
          :: else -> verdict = answer_commit
          fi
       :: decision_losers[batch] == NOBODY && (ORDER_OF_BATCH(batch, RESERVATION_A) || ORDER_OF_BATCH(batch, RESERVATION_B)) ->
          verdict = answer_commit
       :: else
       fi
     }
#endif
     if
     :: verdict != answer_unknown
     :: atomic { verdict == answer_unknown -> resolve_script(batch, epoch) }
     fi
  fi;
  atomic {
    if
    :: verdict == answer_commit -> commit_half(batch)
    :: verdict == answer_rollback && half_state[batch] == half_open -> rollback_half(batch)
    :: else
    fi;
    batch = 0; epoch = 0; verdict = answer_unknown
  }
  goto asked
}

#if defined(HALF_DISCARDED) && !defined(WITHOUT_DISCARDED_LOOP)
/* keeper: the loop over discarded checks works from the message body, older epochs included. (In its own epoch the sweep
   of decided batches finds the winners, and an undecided batch deducted nothing.) */
proctype DiscardedChecks() {
  atomic { half_state[0] == half_discarded && batch_epoch[0] < sale_epoch -> commit_half(0) }
}
#endif
