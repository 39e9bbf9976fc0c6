/* state.pml: everything that is stored anywhere, by the store that keeps it, and the ghosts.

   A ghost is known to nobody in the system: it remembers what a client was told, so that the
   invariants can be judged. Rules never read ghosts, except where a comment says that the client itself knows. */

/* ---- SQL: the sale's row ---- */
mtype:authority_t sale_authority = redis_decides;
byte sale_epoch = 1;
byte sale_available = STOCK;
bit loss_reported;                         /* sticky until the authority changes */
bit sells_on_sql;                          /* gate open while SQL decides */
bit change_planned;
bit sale_closed;
byte overdue_epoch;                        /* the clock: every epoch up to this one ended more than queue_deadline ago */

/* ---- SQL: rows ---- */
mtype:order_t order_row[2] = no_order;
byte order_batch[2];
byte order_bought[2];                      /* per buyer: live units, conditional on the limit */
byte decision_losers[ATTEMPTS];            /* batch decision; empty = no decision row */
byte owed_epoch[2];                        /* effect owed to Redis: end.lua of this reservation, in that epoch only; 0 = none */
bit owed_write_off[2];

/* ---- Redis: one slot. The names of the keys carry the epoch, so keys of another epoch are not found ---- */
byte server_run_id = 1, server_repl_id = 1;      /* INFO of the server that answers now */
bit redis_gone;                                  /* nobody answers, for ever */
byte meta_epoch = 1, meta_run_id = 1, meta_repl_id = 1;   /* what the loader stamped; epoch 0 = no meta */
byte keys_epoch = 1;                             /* epoch in the names of the keys that exist */
byte slot_available = STOCK, slot_granted = STOCK;
byte slot_bought[2];
mtype:record_t slot_record[2] = no_record;
byte slot_record_batch[2];
byte slot_winners[ATTEMPTS], slot_losers[ATTEMPTS];       /* the batch record; both empty = undecided */
byte slot_fences;                                         /* set of fenced batches */
bit slot_closed;

/* ---- the broker ---- */
mtype:half_t half_state[ATTEMPTS] = not_sent;
byte half_candidates[ATTEMPTS];            /* body of the message */
byte batch_epoch[ATTEMPTS];                /* body of the message */
bit in_order_topic[ATTEMPTS];              /* delivered until acked; a second COMMIT brings it back: a duplicate */

/* ---- ghosts ---- */
bit attempt_started[ATTEMPTS];
byte attempt_answered[ATTEMPTS];           /* the candidates that got an answer other than 503 */
byte told_queued_epoch[2];                 /* epoch in which 202 was told, 0 = never */
bit told_never[2];                         /* a final 409, and nobody asked again since */
bit told_unknown[2];                       /* a 404, and nobody asked again since */
byte total_stock = STOCK;                  /* initial + adjustments, as SQL has them */
byte losses_so_far;

/* ---- words about rows and records ---- */
#define ORDER_LIVE(reservation) (order_row[reservation] == awaiting_payment || order_row[reservation] == paid)
#define ORDER_FINAL(reservation) (order_row[reservation] != no_order && !ORDER_LIVE(reservation))
#define LIVE_ORDERS (ORDER_LIVE(0) + ORDER_LIVE(1))
#define UNITS_KEPT ((order_row[0] == refunded_kept) + (order_row[1] == refunded_kept))
#define RECORD_HOLDS(reservation) (slot_record[reservation] == queued || slot_record[reservation] == confirmed)
#define SLOT_HELD (RECORD_HOLDS(0) + RECORD_HOLDS(1))
#define BATCH_DECIDED(batch) (slot_winners[batch] != 0 || slot_losers[batch] != 0)
#define BATCH_FENCED(batch) (slot_fences & (1 << (batch)))

/* ---- is this the same Redis (3.3)? The stamp must name this epoch and the very server that answers: its run_id,
   because a restart may bring back older data under the same replication id; and its replication id, because a master
   demoted, re-synced from an older copy and promoted again keeps run_id and meta. ---- */
#ifdef WITHOUT_RUN_ID
#define SAME_RUN_ID true
#else
#define SAME_RUN_ID (meta_run_id == server_run_id)
#endif
#ifdef WITHOUT_REPLICATION_ID
#define SAME_REPL_ID true
#else
#define SAME_REPL_ID (meta_repl_id == server_repl_id)
#endif
#define IS_SAME_REDIS(epoch) (meta_epoch == (epoch) && keys_epoch == (epoch) && SAME_RUN_ID && SAME_REPL_ID && !redis_gone)
