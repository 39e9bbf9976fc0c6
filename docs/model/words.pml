/* words.pml: the words of design section 1 as states, sets and scenario defaults.

   Two reservations are enough for every story: A and B. A set of them is a byte with one bit each.
   An "attempt" is one request of the storefront that became one half message, so attempts and batches
   are numbered alike (0, 1, 2). Everything below a scenario file may set is listed here with its default. */

#define RESERVATION_A 0
#define RESERVATION_B 1
#define SET_OF(reservation) (1 << (reservation))
#define NOBODY 0
#define JUST_A 1
#define JUST_B 2
#define A_AND_B 3

mtype:authority_t = { sql_decides, loading, redis_decides };
mtype:order_t     = { no_order, awaiting_payment, paid, cancelled, rejected, refunded_kept, refunded_restocked };
mtype:record_t    = { no_record, queued, confirmed, ended };     /* a reservation in Redis */
mtype:half_t      = { not_sent, half_open, half_ended, half_discarded };
mtype:verdict_t   = { answer_unknown, answer_commit, answer_rollback };
mtype:reply_t     = { decided, lost, fenced };                   /* what a script says about itself */
mtype:payment_t   = { not_received, stored, applied, paid_back };
mtype:adjust_t    = { not_asked, pending, adjusted, refused };

/* ---- what a scenario may set ---- */
#ifndef ATTEMPTS
#define ATTEMPTS 1                 /* half messages, at most 3 */
#endif
#ifndef ASKS_0
#define ASKS_0 JUST_A              /* the candidates of each batch */
#endif
#ifndef ASKS_1
#define ASKS_1 NOBODY
#endif
#ifndef ASKS_2
#define ASKS_2 NOBODY
#endif
#ifndef STOCK
#define STOCK 1
#endif
#ifndef REDIS_LOSSES
#define REDIS_LOSSES 0
#endif
#ifndef WORKERS
#define WORKERS 1                  /* order consumers (a worker also runs the keeper's sweep) */
#endif
#ifndef CHECKERS
#define CHECKERS 1                 /* processes that answer check-backs */
#endif
#ifndef LEADERS
#define LEADERS 1
#endif
#ifndef PAYMENTS
#define PAYMENTS 0
#endif
#ifndef EPOCH_BOUND
#define EPOCH_BOUND 12             /* reaching it is an error of the scenario, never a silent cut */
#endif
/* Flags, off unless a scenario defines them:
     RETRY_OF_FIRST        attempt 1 is the same storefront's retry with the same key: it starts after attempt 0
     ONE_BUYER             A and B belong to one buyer (limit 1); else one buyer each
     CANCEL_A n, CANCEL_B  somebody may end the reservation (buyer, payment time-out, participant), n of them at once
     CANCEL_ONLY_ORDERS    ... but only once it is an order
     B_HAS_THE_UNIT        at the start B is an order already
     PLANNED_CHANGE        the operator plans one change of authority
     FALSE_ALARM           somebody reports a loss although Redis is well
     SELLS_ON_SQL          on_redis_loss: sql; the gate may open before older messages have drained (the bound)
     TIME_PASSES           queue_deadline can pass
     ASKS_GET              the storefront asks GET for A
     HALF_DISCARDED        the broker may give up on the first half message
     RESERVE_RUNS_TWICE    a client library repeats a reserve call although no library may
     CLOSES_SALE           the operator closes the sale in the middle
     LOSS_IS_EMPTY         (default) | LOSS_OLDER_AFTER_RESTART | LOSS_OLDER_AFTER_RESYNC | LOSS_SAME_AFTER_RESTART
     LOAD_CALL_LATE, UNLINK_IN_STEPS, REDIS_GOES_AWAY        accidents of the load, see leader.pml
     PAYMENTS n, REFUNDS n, ADJUST_UP, ADJUST_DOWN, TWO_ADJUSTERS, SQL_LOSES_A_UNIT   see money.pml, adjustments.pml */

#define LIMIT_PER_BUYER 1
#ifdef ONE_BUYER
#define BUYER_OF(reservation) 0
#else
#define BUYER_OF(reservation) (reservation)
#endif
#define ALL_ATTEMPTS_AFTER(attempt) ((attempt) + 1 < ATTEMPTS)
