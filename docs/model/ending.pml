/* ending.pml: what ends a reservation (design 3.5): the buyer, the payment time-out, the queue deadline, a participant.
   SQL first, always; the script end.lua after, from what the transaction left as owed. */

#ifdef WITHOUT_ENDING_RESTART
#define CHANGED_SINCE(epoch) false
#else
#define CHANGED_SINCE(epoch) (sale_epoch != epoch || sale_authority != redis_decides)
#endif

proctype Ending(byte reservation) {
  byte epoch;
  mtype:reply_t reply = lost;
  if
#if defined(WITHOUT_ROW_LOCK)
  :: atomic { order_row[reservation] == awaiting_payment && sale_authority != sql_decides -> epoch = sale_epoch }
     atomic {
       if
       :: order_row[reservation] == awaiting_payment ->
          order_row[reservation] = cancelled; sale_available++; order_bought[BUYER_OF(reservation)]--;
          owed_epoch[reservation] = epoch
       :: else
       fi
     }
#elif defined(WITHOUT_SQL_FIRST)
  :: atomic { order_row[reservation] == awaiting_payment && sale_authority == redis_decides && IS_SAME_REDIS(sale_epoch) -> epoch = sale_epoch }
     atomic { end_script(reservation, epoch, 0) }
     if
     :: goto over                                                  /* dies between the stores */
     :: skip
     fi;
     atomic {
       if
       :: reply == decided && order_row[reservation] == awaiting_payment ->
          order_row[reservation] = cancelled; sale_available++; order_bought[BUYER_OF(reservation)]--
       :: else
       fi
     }
#else
  :: atomic { order_row[reservation] == awaiting_payment -> give_back_in_sql(reservation, cancelled) }
#endif
#ifndef CANCEL_ONLY_ORDERS
  /* No order yet: Redis is read first, so the transaction starts over (here: gives up) if authority or epoch changed since. */
  :: atomic { sale_authority == redis_decides && IS_SAME_REDIS(sale_epoch) && slot_record[reservation] == queued -> epoch = sale_epoch }
     atomic {
       if
       :: CHANGED_SINCE(epoch)
       :: !CHANGED_SINCE(epoch) && order_row[reservation] == no_order ->
          order_row[reservation] = cancelled; order_batch[reservation] = slot_record_batch[reservation];
          owe_release(reservation, 0)
       :: else                                                     /* a row is met: it decides */
       fi
     }
#endif
  :: skip                                                          /* nobody ends it */
  fi;
over:
  epoch = 0
}

/* keeper, release pending: apply what is owed, in the epoch it names and no other, then clear it. */
#define RELEASE_DUE(reservation) (owed_epoch[reservation] != 0 && owed_epoch[reservation] == sale_epoch && IS_SAME_REDIS(sale_epoch))

proctype ReleasePending() {
  byte reservation, epoch;
  mtype:reply_t reply = lost;
  bit write_off;
look:
  atomic {
    if
    :: RELEASE_DUE(RESERVATION_A) -> reservation = RESERVATION_A
    :: RELEASE_DUE(RESERVATION_B) -> reservation = RESERVATION_B
    fi;
    epoch = owed_epoch[reservation]; write_off = owed_write_off[reservation]
  }
  atomic {
#ifdef WITHOUT_OWED_EPOCH
    epoch = sale_epoch;                                            /* applied in whatever epoch is current by now */
#endif
    end_script(reservation, epoch, write_off)
  }
  atomic {
    if
    :: true                                                        /* dies before it can clear */
    :: reply == decided && owed_epoch[reservation] == epoch -> owed_epoch[reservation] = 0; owed_write_off[reservation] = 0
    fi;
    reservation = 0; epoch = 0; write_off = 0; reply = lost
  }
  goto look
}
