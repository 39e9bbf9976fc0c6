/* invariants.pml: I1 to I7 of design section 2.

   check_sql runs inside every transaction that moves stock, check_redis inside every script that does,
   so they hold at each instant, not only at the end. monitor.pml judges the rest once nothing can move any more;
   what clients were told (I7) is judged where they are told it (storefront.pml) and where an order appears (sql.pml). */

inline check_sql() {
  assert(sale_available + LIVE_ORDERS + UNITS_KEPT == total_stock);              /* I1 conservation, I2 no oversell in SQL, I4 exactly once */
  assert(order_bought[0] <= LIMIT_PER_BUYER && order_bought[1] <= LIMIT_PER_BUYER);            /* I3 limit in SQL */
#ifdef ONE_BUYER
  assert(order_bought[0] == LIVE_ORDERS)                                         /* I3, I4: the counter kept apart agrees */
#else
  assert(order_bought[0] == ORDER_LIVE(0) && order_bought[1] == ORDER_LIVE(1))   /* I3, I4 */
#endif
}

inline check_redis(epoch) {
  if
  :: IS_SAME_REDIS(epoch) ->
     assert(slot_available + SLOT_HELD == slot_granted);                         /* I1: granted = available + held, exact at any instant */
#ifndef SQL_LOSES_A_UNIT
     assert(slot_granted <= total_stock);                                        /* I2 no oversell in Redis */
#endif
     assert(slot_bought[0] <= LIMIT_PER_BUYER && slot_bought[1] <= LIMIT_PER_BUYER);           /* I3 limit in Redis */
#ifdef ONE_BUYER
     assert(slot_bought[0] == SLOT_HELD)                                         /* I3, I4 */
#else
     assert(slot_bought[0] == RECORD_HOLDS(0) && slot_bought[1] == RECORD_HOLDS(1))            /* I3, I4 */
#endif
  :: else
  fi
}
