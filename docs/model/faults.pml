/* faults.pml: what Redis and the operator may do to the protocol. (Processes that pause or die, and calls that time out
   and land later, are branches inside the processes themselves.)

   A Redis loss is one of, by scenario:
     LOSS_IS_EMPTY             another, empty server, or FLUSHALL plus restart: both ids new
     LOSS_OLDER_AFTER_RESTART  the server restarts with the data of its last load: run_id new, replication id kept
     LOSS_OLDER_AFTER_RESYNC   a master demoted, re-synced from an older copy and promoted: run_id kept, replication id new
     LOSS_SAME_AFTER_RESTART   the server restarts with all its data: a needless but safe rebuild */

#if defined(LOSS_OLDER_AFTER_RESTART) || defined(LOSS_OLDER_AFTER_RESYNC)
#define KEEPS_OLD_COPY
byte old_available = STOCK, old_granted = STOCK, old_bought[2], old_meta_epoch = 1, old_run_id = 1, old_repl_id = 1;
mtype:record_t old_record[2] = no_record;
#endif

inline keep_old_copy() {
#ifdef KEEPS_OLD_COPY
  old_available = slot_available; old_granted = slot_granted; old_meta_epoch = meta_epoch; old_run_id = meta_run_id; old_repl_id = meta_repl_id;
  old_record[0] = slot_record[0]; old_record[1] = slot_record[1]; old_bought[0] = slot_bought[0]; old_bought[1] = slot_bought[1]
#else
  skip
#endif
}
inline return_with_old_copy() {
  forget_slot();
#ifdef KEEPS_OLD_COPY
  slot_available = old_available; slot_granted = old_granted;
  slot_record[0] = old_record[0]; slot_record[1] = old_record[1]; slot_bought[0] = old_bought[0]; slot_bought[1] = old_bought[1];
  meta_epoch = old_meta_epoch; keys_epoch = old_meta_epoch; meta_run_id = old_run_id; meta_repl_id = old_repl_id
#endif
}

#if REDIS_LOSSES > 0
proctype RedisIsLost() {
  do
  :: losses_so_far < REDIS_LOSSES ->
     atomic {
       losses_so_far++;
#if defined(LOSS_OLDER_AFTER_RESTART)
       server_run_id++; return_with_old_copy()
#elif defined(LOSS_OLDER_AFTER_RESYNC)
       server_repl_id++; return_with_old_copy()
#elif defined(LOSS_SAME_AFTER_RESTART)
       server_run_id++
#else
       server_run_id++; server_repl_id++;
       forget_slot(); meta_epoch = 0; keys_epoch = 0
#endif
     }
  :: break
  od
}
#endif

#ifdef REDIS_GOES_AWAY
proctype RedisGoesAway() {
  if
  :: atomic { sale_authority == loading -> redis_gone = 1; forget_slot(); meta_epoch = 0; keys_epoch = 0 }
  :: skip
  fi
}
#endif

#ifdef PLANNED_CHANGE
proctype OperatorPlansChange() {
  if
  :: atomic { sale_authority == redis_decides -> change_planned = 1 }
  :: skip
  fi
}
#endif

#ifdef FALSE_ALARM
/* A misrouted process reports a loss although Redis is well. */
proctype ReportsFalseAlarm() {
  if
  :: atomic { sale_authority == redis_decides -> loss_reported = 1 }
  :: skip
  fi
}
#endif

#ifdef CLOSES_SALE
/* The sale's status closes; authority and epoch stay as they are. SQL first, then the mark that reserve.lua reads. */
proctype OperatorClosesSale() {
  if
  :: atomic { true; sale_closed = 1 }
     atomic {
       if
       :: sale_authority == redis_decides && IS_SAME_REDIS(sale_epoch) -> slot_closed = 1
       :: else
       fi
     }
  :: skip
  fi
}
#endif

#ifdef SQL_LOSES_A_UNIT
/* Somebody takes a unit out of SQL by hand, so that Redis has promised more than SQL has. */
proctype UnitTakenByHand() {
  if
  :: atomic { sale_available > 0 -> sale_available--; total_stock-- }
  :: skip
  fi
}
#endif
