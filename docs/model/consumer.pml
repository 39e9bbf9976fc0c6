/* consumer.pml: the order transaction (design 3.4), older epochs' candidates (3.3), and the keeper's sweep of decided
   batches without orders (3.8), which runs the same transaction on the stored body. One worker takes a message or a
   sweep at a time; it may die after any step and begin again. */

#ifdef WITHOUT_BATCH_IN_RECORD
#define OF_THIS_BATCH(batch, reservation) true
#else
#define OF_THIS_BATCH(batch, reservation) (slot_record_batch[reservation] == (batch))
#endif
#define OWN_WINNER(batch, reservation) \
  ((half_candidates[batch] & SET_OF(reservation)) && RECORD_HOLDS(reservation) && OF_THIS_BATCH(batch, reservation))

#ifdef WITHOUT_WAITING_IN_LOADING
#define MUST_WAIT false
#else
#define MUST_WAIT (sale_authority == loading)
#endif
#define CAN_CONSUME(batch) (in_order_topic[batch] && ( \
  (batch_epoch[batch] == sale_epoch && IS_SAME_REDIS(sale_epoch)) || \
  (batch_epoch[batch] < sale_epoch && !MUST_WAIT && (sale_authority != redis_decides || IS_SAME_REDIS(sale_epoch)))))

#ifdef WITHOUT_SWEEP
#define CAN_SWEEP(batch) false
#else
#define CAN_SWEEP(batch) (sale_authority == redis_decides && IS_SAME_REDIS(sale_epoch) && slot_winners[batch] != 0 && ( \
  (slot_record[0] == queued && OWN_WINNER(batch, 0)) || (slot_record[1] == queued && OWN_WINNER(batch, 1))))
#endif

inline without_named_losers(batch) {                               /* a decision row told them 409 */
#ifndef WITHOUT_SKIPPING_LOSERS
  undecided = undecided & ~decision_losers[batch]
#else
  skip
#endif
}

proctype OrderWorker() {
  byte batch, epoch, undecided, winners, losers, decided_elsewhere;
  mtype:authority_t authority = redis_decides;
  mtype:reply_t reply = lost;
  bit sweeping, past_deadline_seen_before;
receive:
  atomic {
    batch = 0; epoch = 0; undecided = 0; winners = 0; losers = 0; decided_elsewhere = 0;
    authority = redis_decides; reply = lost; sweeping = 0; past_deadline_seen_before = 0
  }
  atomic {
    if
    :: CAN_CONSUME(0) -> batch = 0
    :: CAN_SWEEP(0) -> batch = 0; sweeping = 1
#if ATTEMPTS > 1
    :: CAN_CONSUME(1) -> batch = 1
    :: CAN_SWEEP(1) -> batch = 1; sweeping = 1
#endif
#if ATTEMPTS > 2
    :: CAN_CONSUME(2) -> batch = 2
    :: CAN_SWEEP(2) -> batch = 2; sweeping = 1
#endif
    fi;
    authority = sale_authority; epoch = sale_epoch;
#ifdef DEADLINE_READ_EARLY
    past_deadline_seen_before = PAST_DEADLINE(batch)
#endif
  }
#ifdef WITHOUT_ACK_AFTER_COMMIT
  if
  :: !sweeping ->
     in_order_topic[batch] = 0;
     if
     :: goto receive
     :: skip
     fi
  :: else
  fi;
#endif
  if
  :: batch_epoch[batch] == epoch || sweeping ->                    /* own epoch: the winners that the records name */
     atomic {
       if
       :: !IS_SAME_REDIS(epoch) -> goto receive
       :: else ->
          if
          :: OWN_WINNER(batch, RESERVATION_A) -> winners = winners | JUST_A
          :: else
          fi;
          if
          :: OWN_WINNER(batch, RESERVATION_B) -> winners = winners | JUST_B
          :: else
          fi
       fi
     }
     atomic {
       if
       :: !STILL(authority, epoch) -> goto receive
       :: else ->
          d_step {
            decide_order(batch, RESERVATION_A, winners, true); decide_order(batch, RESERVATION_B, winners, true);
            check_sql()
          }
       fi
     }
  :: batch_epoch[batch] < epoch && !sweeping && authority != redis_decides ->       /* older, SQL decides alone */
     atomic {
       if
       :: !STILL(authority, epoch) -> goto receive
       :: else ->
          d_step {
            undecided = half_candidates[batch];
            without_named_losers(batch);
            if
            :: JUDGED_PAST_DEADLINE(batch) -> reject_order(batch, RESERVATION_A, undecided); reject_order(batch, RESERVATION_B, undecided)
            :: else -> decide_order(batch, RESERVATION_A, undecided, false); decide_order(batch, RESERVATION_B, undecided, false)
            fi;
            undecided = 0;
            check_sql()
          }
       fi
     }
  :: else ->                                                       /* older, Redis decides: reserve again */
     atomic {
       undecided = half_candidates[batch];
       without_named_losers(batch);
       if
       :: (undecided & JUST_A) && order_row[RESERVATION_A] != no_order -> undecided = undecided - JUST_A
       :: else
       fi;
       if
       :: (undecided & JUST_B) && order_row[RESERVATION_B] != no_order -> undecided = undecided - JUST_B
       :: else
       fi
     }
     atomic {
       reserve_script(batch, epoch, undecided, true, JUDGED_PAST_DEADLINE(batch));
       undecided = 0; decided_elsewhere = 0;
       if
       :: reply != decided -> goto receive
       :: else
       fi
     }
     atomic {
       if
       :: !STILL(authority, epoch) -> goto receive
       :: else ->
          d_step {
            decide_order(batch, RESERVATION_A, winners, true); decide_order(batch, RESERVATION_B, winners, true);
            reject_order(batch, RESERVATION_A, losers); reject_order(batch, RESERVATION_B, losers);
            losers = 0;
            check_sql()
          }
       fi
     }
  fi;
  if                                                               /* COMMIT is done; the rest is best effort */
  :: winners != NOBODY ->
     if
     :: goto receive                                               /* dies: redelivery or the sweep confirms */
     :: atomic {
          true; confirm_script(RESERVATION_A, winners, epoch); confirm_script(RESERVATION_B, winners, epoch);
          check_redis(epoch)
        }
     fi
  :: else
  fi;
  if
  :: sweeping
  :: !sweeping ->
     if
     :: goto receive                                               /* the ack is lost: delivered again */
     :: in_order_topic[batch] = 0
     fi
  fi;
  goto receive
}
