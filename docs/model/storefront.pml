/* storefront.pml: what clients are told and may believe (I7): 202 queued, 409 and its `final`, 404. */

/* The attempt asked for this id, had no answer, and may still win (its epoch's deadline has not passed). */
#define UNANSWERED(attempt, reservation) \
  (attempt_started[attempt] && (ASKED_BY(attempt) & SET_OF(reservation)) && \
   !(attempt_answered[attempt] & SET_OF(reservation)) && batch_epoch[attempt] > overdue_epoch)
#define ASKED_BY(attempt) ((attempt) == 0 -> ASKS_0 : ((attempt) == 1 -> ASKS_1 : ASKS_2))

#ifdef RETRY_OF_FIRST
#define SHARED_BY_RETRY (ASKS_0 & ASKS_1)
#define EARLIER_UNANSWERED(attempt, reservation) \
  ((attempt) == 1 && (SHARED_BY_RETRY & SET_OF(reservation)) && UNANSWERED(0, reservation))
#define ASKED_AGAIN(attempt, reservation) \
  ((attempt) == 0 && (SHARED_BY_RETRY & SET_OF(reservation)) && attempt_started[1])
#else
#define EARLIER_UNANSWERED(attempt, reservation) false
#define ASKED_AGAIN(attempt, reservation) false
#endif

#if ATTEMPTS > 2
#define ANY_UNANSWERED(reservation) (UNANSWERED(0, reservation) || UNANSWERED(1, reservation) || UNANSWERED(2, reservation))
#define ATTEMPTS_STARTED (attempt_started[0] + attempt_started[1] + attempt_started[2])
#elif ATTEMPTS > 1
#define ANY_UNANSWERED(reservation) (UNANSWERED(0, reservation) || UNANSWERED(1, reservation))
#define ATTEMPTS_STARTED (attempt_started[0] + attempt_started[1])
#else
#define ANY_UNANSWERED(reservation) UNANSWERED(0, reservation)
#define ATTEMPTS_STARTED (attempt_started[0])
#endif

/* A 409 binds when the service calls it `final` (no older epoch may still win) and the client, who knows its own
   attempts, had no other one open: with one open it asks GET before it believes a 409. */
#ifdef WITHOUT_FINAL
#define SAID_FINAL(epoch) true
#else
#define SAID_FINAL(epoch) (overdue_epoch >= (epoch) - 1)
#endif
#ifdef WITHOUT_CLIENT_GET
#define BINDING(attempt, reservation, epoch) SAID_FINAL(epoch)
#else
#define BINDING(attempt, reservation, epoch) (SAID_FINAL(epoch) && !earlier_attempt_open)
#endif

inline tell_queued(attempt, reservation, epoch) {
  told_queued_epoch[reservation] = epoch;
  attempt_answered[attempt] = attempt_answered[attempt] | SET_OF(reservation)
}
inline tell_stored_state(attempt, reservation) {                   /* a replay: cancelled, rejected, ... as it is */
  attempt_answered[attempt] = attempt_answered[attempt] | SET_OF(reservation)
}
inline tell_refused(attempt, reservation, epoch) {                 /* 409 sold_out, limit_reached or sale_closed */
  attempt_answered[attempt] = attempt_answered[attempt] | SET_OF(reservation);
  if
  :: !ASKED_AGAIN(attempt, reservation) && BINDING(attempt, reservation, epoch) ->
     told_never[reservation] = 1;
     assert(!ORDER_LIVE(reservation))                              /* I7 */
  :: else
  fi
}
inline asks_again(candidates) {                                    /* a new attempt: what was told of these ids before no longer binds */
  if
  :: candidates & JUST_A -> told_never[0] = 0; told_unknown[0] = 0
  :: else
  fi;
  if
  :: candidates & JUST_B -> told_never[1] = 0; told_unknown[1] = 0
  :: else
  fi
}

#ifdef ASKS_GET
/* GET /v1/reservations/A: reads the clock first, then SQL, Redis, and SQL again before it says 404. While the id may yet
   appear after a change of epoch it says 503. WITHOUT_SECOND_SQL_READ, WITHOUT_CLOCK_FIRST leave parts out. */
proctype GetsReservation() {
  byte epoch, attempts_before, told_before;
  mtype:authority_t authority;
  bit unanswered_before;
  atomic {
    attempt_started[0] && order_row[RESERVATION_A] == no_order ->
    epoch = sale_epoch; authority = sale_authority;
    attempts_before = ATTEMPTS_STARTED; told_before = told_queued_epoch[RESERVATION_A];       /* ghosts */
    unanswered_before = ANY_UNANSWERED(RESERVATION_A);
#ifndef WITHOUT_CLOCK_FIRST
    if
    :: overdue_epoch < epoch - 1 -> goto answered_otherwise        /* 503 */
    :: else
    fi
#endif
  }
  atomic {
    if
    :: authority == redis_decides && !IS_SAME_REDIS(epoch) -> goto answered_otherwise
    :: authority == redis_decides && IS_SAME_REDIS(epoch) && slot_record[RESERVATION_A] != no_record -> goto answered_otherwise
    :: else
    fi
#ifdef WITHOUT_SECOND_SQL_READ
    ;
    if
    :: !unanswered_before && attempts_before == ATTEMPTS_STARTED ->
       told_unknown[RESERVATION_A] = 1;
       assert(!ORDER_LIVE(RESERVATION_A) && told_before <= overdue_epoch)          /* I7 */
    :: else
    fi;
    goto answered_otherwise
#endif
  }
  atomic {
    if
    :: order_row[RESERVATION_A] != no_order
#ifdef WITHOUT_CLOCK_FIRST
    :: order_row[RESERVATION_A] == no_order && overdue_epoch < sale_epoch - 1
#endif
    :: else ->
       if
       :: !unanswered_before && attempts_before == ATTEMPTS_STARTED ->
          told_unknown[RESERVATION_A] = 1;
          assert(told_before <= overdue_epoch)                     /* I7: a 404 after 202 only when that epoch's deadline has passed */
       :: else
       fi
    fi
  }
answered_otherwise:
  atomic { epoch = 0; attempts_before = 0; told_before = 0; authority = redis_decides; unanswered_before = 0 }
}
#endif
