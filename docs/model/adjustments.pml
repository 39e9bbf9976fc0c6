/* adjustments.pml: one stock adjustment with an id (design 3.8). Redis must never have more than SQL, so an increase goes
   SQL first, then Redis (owed, in the epoch read under the row lock); a decrease goes Redis first (conditional), then SQL
   (start over if authority or epoch changed since). The request is stored as pending, so the keeper finishes what the
   operator's call left half done; both may work on it at once (TWO_ADJUSTERS). adjust.lua records what it decided
   under the adjustment's id, a refusal too, and replays it. */

#if defined(ADJUST_UP) || defined(ADJUST_DOWN)
mtype:adjust_t adjustment_state = not_asked;             /* SQL: the adjustment's row */
byte adjustment_owed_epoch;                            /* SQL */
mtype:adjust_t slot_adjustment = not_asked;              /* Redis: decided under this id, in this epoch's keys */

inline adjust_up_script(epoch) {
  if
  :: !IS_SAME_REDIS(epoch) -> reply = lost
  :: else ->
     reply = decided;
     if
#ifndef WITHOUT_ADJUSTMENT_ID
     :: slot_adjustment == adjusted
#endif
     :: else -> slot_available++; slot_granted++; slot_adjustment = adjusted
     fi
  fi;
  check_redis(epoch)
}
inline adjust_down_script(epoch) {                     /* leaves adjusted or refused in `outcome` */
  if
  :: !IS_SAME_REDIS(epoch) -> reply = lost
  :: else ->
     reply = decided;
     if
#ifndef WITHOUT_ADJUSTMENT_ID
     :: slot_adjustment == adjusted -> outcome = adjusted
#ifndef WITHOUT_REFUSAL_RECORDED
     :: slot_adjustment == refused -> outcome = refused
#endif
#endif
     :: else ->
        if
        :: slot_available > 0 -> slot_available--; slot_granted--; slot_adjustment = adjusted; outcome = adjusted
        :: else -> slot_adjustment = refused; outcome = refused
        fi
     fi
  fi;
  check_redis(epoch)
}

#ifdef ADJUST_UP
proctype Adjuster() {
  byte epoch;
  mtype:reply_t reply = lost;
#ifdef WITHOUT_ADJUSTMENT_ORDER
  atomic { adjustment_state == not_asked && sale_authority == redis_decides && IS_SAME_REDIS(sale_epoch) -> epoch = sale_epoch }
  atomic { adjust_up_script(epoch) }
  atomic { true; sale_available++; total_stock++; adjustment_state = adjusted }
#else
look:
  atomic {
    if
    :: adjustment_state == not_asked ->
       adjustment_state = adjusted; sale_available++; total_stock++;
       if
       :: sale_authority != sql_decides -> adjustment_owed_epoch = sale_epoch
       :: else
       fi;
       check_sql();
       goto look
    :: adjustment_owed_epoch != 0 && adjustment_owed_epoch == sale_epoch && IS_SAME_REDIS(sale_epoch) -> epoch = sale_epoch
    fi
  }
  atomic {
#ifdef WITHOUT_OWED_EPOCH
    epoch = sale_epoch;                                /* applied in whatever epoch is current by now */
#endif
    adjust_up_script(epoch)
  }
  atomic {
    if
    :: true                                            /* dies before it can clear */
    :: reply == decided && adjustment_owed_epoch == epoch -> adjustment_owed_epoch = 0
    fi;
    epoch = 0; reply = lost
  }
  goto look
#endif
}
#endif

#ifdef ADJUST_DOWN
proctype Adjuster() {
  byte epoch;
  mtype:reply_t reply = lost;
  mtype:adjust_t outcome = not_asked;
look:
  atomic {
    epoch = 0; reply = lost; outcome = not_asked;
    if
    :: adjustment_state == not_asked -> adjustment_state = pending; goto look
    :: adjustment_state == pending && sale_authority == redis_decides && IS_SAME_REDIS(sale_epoch) -> epoch = sale_epoch
    :: adjustment_state == pending && sale_authority == sql_decides ->        /* no Redis to ask: SQL alone, conditional */
       if
       :: sale_available > 0 -> sale_available--; total_stock--; adjustment_state = adjusted
       :: else -> adjustment_state = refused
       fi;
       check_sql();
       goto look
    fi
  }
#ifdef WITHOUT_ADJUSTMENT_ORDER
  atomic {
    if
    :: adjustment_state == pending && STILL(redis_decides, epoch) && sale_available > 0 ->
       sale_available--; total_stock--; adjustment_state = adjusted
    :: else -> goto look
    fi
  }
  atomic { adjust_down_script(epoch) }
#else
  atomic {
    adjust_down_script(epoch);
    if
    :: reply == lost -> report_loss(epoch); goto look
    :: else
    fi
  }
  if
  :: goto look                                         /* dies: the keeper asks again under the same id */
  :: atomic {
       true;
       if
       :: !STILL(redis_decides, epoch) || adjustment_state != pending
       :: else ->
          adjustment_state = outcome;
          if
          :: outcome == adjusted ->
             assert(sale_available > 0);               /* I1: what Redis had free, SQL has */
             sale_available--; total_stock--
          :: else
          fi;
          check_sql()
       fi
     }
  fi;
#endif
  goto look
}
#endif
#endif
