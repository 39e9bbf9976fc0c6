/* money.pml: payments and refunds (design 3.6, invariant I6). All payments are for reservation A.

   A signed `succeeded` is stored by its unique id before it is answered; the provider repeats it until it is answered.
   It is applied by one conditional update that also decides pay versus cancel; what cannot be applied any more becomes
   exactly one refund record. The keeper applies what was stored while there was no order yet. */

#if PAYMENTS > 0
#define NO_PAYMENT 9

mtype:payment_t payment_state[PAYMENTS] = not_received;
bit payment_answered[PAYMENTS];
bit payment_made[PAYMENTS];                /* ghost: the buyer's money has moved */
byte refund_records[PAYMENTS];
byte order_paid_by = NO_PAYMENT;

inline record_refund(payment) {
  payment_state[payment] = paid_back;
  refund_records[payment]++;
  assert(refund_records[payment] == 1)                             /* I6: exactly one refund record */
}

/* One transaction, the whole application of a stored payment. An order that is not there yet leaves it stored. */
inline apply_payment(payment) {
  if
  :: payment_state[payment] != stored                              /* applied or paid back before */
  :: payment_state[payment] == stored && order_row[RESERVATION_A] == awaiting_payment ->
     order_row[RESERVATION_A] = paid; order_paid_by = payment; payment_state[payment] = applied;
     check_sql()
  :: payment_state[payment] == stored && (order_row[RESERVATION_A] == paid || ORDER_FINAL(RESERVATION_A)) -> record_refund(payment)
  :: else
  fi
}

/* The same, read and then act: two switches leave out what makes it safe. */
inline apply_payment_in_steps(payment) {
  atomic { state_seen = payment_state[payment]; row_seen = order_row[RESERVATION_A] }
  atomic {
    if
#if defined(WITHOUT_CONDITIONAL_UPDATE)
    :: state_seen == stored && row_seen == awaiting_payment && payment_state[payment] == stored ->
       order_row[RESERVATION_A] = paid; order_paid_by = payment; payment_state[payment] = applied;
       check_sql()
    :: state_seen == stored && row_seen != awaiting_payment && row_seen != no_order && payment_state[payment] == stored -> record_refund(payment)
#else
    :: state_seen == stored && row_seen == awaiting_payment -> apply_payment(payment)
    :: state_seen == stored && row_seen != awaiting_payment && row_seen != no_order -> record_refund(payment)
#endif
    :: else
    fi;
    state_seen = not_received; row_seen = no_order
  }
}

#if defined(WITHOUT_CONDITIONAL_UPDATE) || defined(WITHOUT_REFUND_ONCE)
#define APPLY(payment) apply_payment_in_steps(payment)
#else
#define APPLY(payment) atomic { apply_payment(payment) }
#endif

/* The provider and our endpoint. A buyer pays once 202 was told; the order may come later. */
proctype PaymentArrives(byte payment) {
  mtype:payment_t state_seen = not_received; mtype:order_t row_seen = no_order;
  if
  :: atomic { told_queued_epoch[RESERVATION_A] != 0 -> payment_made[payment] = 1 }
  :: goto never_paid
  fi;
  do
  :: !payment_answered[payment] ->
#ifdef WITHOUT_STORED_BEFORE_ANSWERED
     atomic { true; payment_answered[payment] = 1 }
     if
     :: skip
     :: goto never_paid                                            /* dies after the answer */
     fi;
#endif
     atomic {                                                      /* unique id: a second delivery stores nothing */
       if
       :: payment_state[payment] == not_received -> payment_state[payment] = stored
       :: else
       fi
     }
     if
     :: skip                                                       /* dies here: no answer, delivered again */
     :: atomic { true; payment_answered[payment] = 1 }
     fi;
     APPLY(payment)
  :: payment_answered[payment] -> break
  od;
never_paid:
  skip
}

#ifdef WITHOUT_PAYMENT_SWEEP
#define PAYMENT_DUE(payment) false
#else
#define PAYMENT_DUE(payment) (payment_state[payment] == stored && order_row[RESERVATION_A] != no_order)
#endif
proctype PaymentsWaiting() {                                       /* keeper: payments waiting for an order */
  byte payment;
  mtype:payment_t state_seen = not_received; mtype:order_t row_seen = no_order;
look:
  if
  :: atomic { PAYMENT_DUE(0) -> payment = 0 }
#if PAYMENTS > 1
  :: atomic { PAYMENT_DUE(1) -> payment = 1 }
#endif
  fi;
  APPLY(payment);
  payment = 0;
  goto look
}

#ifdef REFUNDS
/* A refund after payment (fulfilment failed, the operator): `restock` decides whether the unit returns. The allowance does
   in either case, so without restock Redis gets a write-off: allowance back, unit gone. Twice, as two people press the button. */
proctype Refunds() {
  byte payment;
  if
  :: atomic {
       order_row[RESERVATION_A] == paid ->
       payment = order_paid_by; order_paid_by = NO_PAYMENT;
       record_refund(payment);
       if
       :: give_back_in_sql(RESERVATION_A, refunded_restocked)
       :: order_row[RESERVATION_A] = refunded_kept; order_bought[BUYER_OF(RESERVATION_A)]--;
          owe_release(RESERVATION_A, 1);
          check_sql()
       fi;
       payment = 0
     }
  :: skip
  fi
}
#endif

/* I6: a payment made ends in the one order that it paid, or in exactly one refund record. */
#define PAID_THE_ORDER(payment) (order_row[RESERVATION_A] == paid && order_paid_by == payment)
inline check_payment(payment) {
  assert(!payment_made[payment] || PAID_THE_ORDER(payment) + refund_records[payment] == 1);      /* I6 */
  assert(payment_made[payment] || refund_records[payment] == 0)                                  /* I6 */
}
inline check_money() {
  check_payment(0);
#if PAYMENTS > 1
  check_payment(1);
#endif
  assert(order_row[RESERVATION_A] != paid || order_paid_by != NO_PAYMENT)                        /* I6 */
}
#endif
