/* monitor.pml: the verdict once everything is quiet. "timeout" is Promela's word for "no other process can take a step". */

proctype Monitor() {
  timeout ->
#if LEADERS > 1
  if :: load_attempts >= LOAD_ATTEMPT_BOUND && sale_authority != redis_decides -> goto judged :: else fi;
#endif
  assert(half_state[0] != half_open && !in_order_topic[0]);                      /* I5 nothing stays in doubt */
#if ATTEMPTS > 1
  assert(half_state[1] != half_open && !in_order_topic[1]);                      /* I5 */
#endif
#if ATTEMPTS > 2
  assert(half_state[2] != half_open && !in_order_topic[2]);                      /* I5 */
#endif
  assert(!told_queued_epoch[0] || order_row[0] != no_order);                     /* I5: who was told queued has an order row */
  assert(!told_queued_epoch[1] || order_row[1] != no_order);                     /* I5 */
  assert(!told_never[0] || !ORDER_LIVE(0));                                      /* I7 a final 409 is not contradicted */
  assert(!told_never[1] || !ORDER_LIVE(1));                                      /* I7 */
  check_sql();                                                                   /* I1, I2, I3 */
#if PAYMENTS > 0
  check_money();                                                                 /* I6 */
#endif
#ifdef REDIS_GOES_AWAY
  if :: redis_gone -> goto judged :: else fi;
#endif
  assert(sale_authority == redis_decides && IS_SAME_REDIS(sale_epoch));          /* I5: it sells again, with no person */
  check_redis(sale_epoch);                                                       /* I1, I2, I3 */
#ifdef SQL_LOSES_A_UNIT
  /* What SQL has lost, Redis may promise until somebody claims it; the claim is rejected and written off, once. */
  assert(slot_granted == sale_available + LIVE_ORDERS ||
         (total_stock < STOCK && order_row[0] != rejected && order_row[1] != rejected && slot_granted == sale_available + LIVE_ORDERS + 1));   /* I1, I4 */
#else
  assert(slot_granted == sale_available + LIVE_ORDERS);                          /* I1, I4: the stores agree */
  assert(slot_available == sale_available);                                      /* I1, I4 */
#endif
  assert(owed_epoch[0] == 0 && owed_epoch[1] == 0);                              /* I4: nothing is still owed */
#if defined(ADJUST_UP) || defined(ADJUST_DOWN)
  assert(adjustment_state == adjusted || adjustment_state == refused);           /* I5 */
  assert(adjustment_owed_epoch == 0);                                            /* I4 */
#endif
judged:
  skip
}
